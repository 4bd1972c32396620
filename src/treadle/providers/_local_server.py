"""The child process behind `local:` models: llama.cpp's own server, for as long as standard input stays open.

Run as `python -m treadle.providers._local_server`. The first line of standard input is JSON of `ServerOptions`; the
first line of standard output is the server's address once it answers. Whatever llama.cpp writes goes to standard error.
"""

from __future__ import annotations

import http.client
import os
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec


class ServerOptions(msgspec.Struct):
    """What to serve. The key travels here because other users may read a command line."""

    model: str
    alias: str
    key: str
    context_tokens: int
    chat_template: str | None = None


def main() -> None:
    """Serves until whoever holds the other end of standard input closes it or dies."""
    options = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServerOptions)
    answer = os.dup(1)
    os.dup2(2, 1)
    server = _serve(options)
    while not _healthy(server.listening_address):
        time.sleep(0.05)
    os.write(answer, f"{server.listening_address}\n".encode())
    sys.stdin.buffer.read()
    os._exit(0)  # the server's own way to end waits for answers that nobody reads any more


def _serve(options: ServerOptions) -> Any:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = options.model
    parameters.model_alias = type(parameters.model_alias)([options.alias])  # a list in some versions, a set in others
    parameters.api_keys = [options.key]
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_parallel = 1
    parameters.n_ctx = options.context_tokens
    parameters.use_jinja = True
    parameters.ui = False
    parameters.verbosity = 1
    if options.chat_template is not None:
        parameters.chat_template = options.chat_template
    return xllamacpp.Server(parameters)


def _healthy(address: str) -> bool:
    """Whether the server answers. It says 503 while it loads; some versions come back before that is over."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=5.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    main()
