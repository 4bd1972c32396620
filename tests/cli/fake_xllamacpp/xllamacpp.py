"""Stands in for the package of the same name: a server that does what the words in its model file say.

`broken`: cannot be loaded. `slow`: says 503 for a while. `dies`: ends in the middle of an answer. `stalls`: stops in the
middle of an answer. It writes its port to a file beside the model.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace


class CommonParams:
    def __init__(self):
        self.model = SimpleNamespace(path="")
        self.model_alias = set()
        self.api_keys = []
        self.chat_template = None


class Server:
    def __init__(self, params):
        sys.stdout.write("llama.cpp says many things\n")
        sys.stdout.flush()
        words = Path(params.model.path).read_text()
        if "broken" in words:
            sys.stderr.write("0.00.001 I load: trying\n0.00.002 E load: not a model\n0.00.003 E init: giving up\n")
            raise RuntimeError("Failed to init server")
        http = ThreadingHTTPServer(("127.0.0.1", params.port), _handler(params, words))
        http.daemon_threads = True
        threading.Thread(target=http.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{http.server_address[1]}"
        Path(f"{params.model.path}.port").write_text(str(http.server_address[1]))


def _handler(params, words):
    loading = iter([True, True, True] if "slow" in words else [])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(503 if next(loading, False) else 200)
            self.end_headers()

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            key = self.headers.get("authorization", "").removeprefix("Bearer ")
            self.send_response(200 if key in params.api_keys else 401)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            told = {
                "template": params.chat_template,
                "policy": os.environ.get("OMP_WAIT_POLICY"),
                "host": params.hostnames,
                "alias": sorted(params.model_alias),
                "asked": body["model"],
                "context": params.n_ctx,
            }
            self.send({"content": json.dumps(told)})
            if "dies" in words:
                os._exit(1)
            if "stalls" in words:
                threading.Event().wait()
            self.send({}, "stop")
            self.wfile.write(b"data: [DONE]\n\n")

        def send(self, delta, finish=None):
            chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], "model": "x"}
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")

        def log_message(self, *_): ...

    return Handler
