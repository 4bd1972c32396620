"""Which model a run without `-m` gets."""

from __future__ import annotations

import os
import socket
import threading
import types

import pytest

from support.program import text
from treadle.cli.choice import DEFAULTS, LOCAL_SERVERS, choose
from treadle.providers import resolve

OLLAMA = {
    "/api/version": {"version": "0.13.0"},
    "/api/tags": {"models": [{"name": "tiny:latest"}, {"name": "big:70b"}]},
}
LM_STUDIO = {
    "/api/v0/models": {
        "object": "list",
        "data": [
            {"id": "embed", "object": "model", "type": "embeddings", "compatibility_type": "gguf", "state": "loaded"},
            {"id": "resting", "object": "model", "type": "llm", "compatibility_type": "gguf", "state": "not-loaded"},
            {"id": "awake", "object": "model", "type": "vlm", "compatibility_type": "mlx", "state": "loaded"},
        ],
    }
}
LM_STUDIO_V1 = {
    "/api/v1/models": {
        "models": [
            {"type": "embedding", "key": "embed", "loaded_instances": [{"id": "embed"}]},
            {"type": "llm", "key": "resting", "loaded_instances": []},
            {"type": "llm", "key": "awake", "loaded_instances": [{"id": "awake"}]},
        ]
    }
}
LLAMA_CPP = {
    "/props": {"default_generation_settings": {}, "total_slots": 1, "model_path": "/models/tiny.gguf"},
    "/v1/models": {"object": "list", "data": [{"id": "tiny.gguf", "owned_by": "llamacpp"}]},
}


def at(*servers):
    """The local servers, each on the port of one of ours; one without a server is on a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        ports = [free.getsockname()[1] if server is None else server.port for server in servers]
    return [known._replace(port=port) for known, port in zip(LOCAL_SERVERS, ports, strict=True)]


@pytest.mark.parametrize(
    ("place", "answers", "model"),
    [
        (0, OLLAMA, "ollama:tiny:latest"),
        (1, LM_STUDIO, "lmstudio:awake"),
        (1, LM_STUDIO_V1, "lmstudio:awake"),
        (2, LLAMA_CPP, "llamacpp:tiny.gguf"),
    ],
)
def test_a_local_server_is_known_by_what_it_answers(serve, place, answers, model):
    server = serve(answers)
    choice = choose({}, at(*(server if index == place else None for index in range(3))))
    assert (choice.model, choice.base_url) == (model, server.url)
    assert choice.why.startswith(f"using {model} (") and str(server.port) in choice.why
    resolve(choice.model, base_url=choice.base_url)


def test_of_several_servers_the_first_of_the_list_is_taken(serve):
    assert choose({}, at(serve(OLLAMA), serve(LM_STUDIO), serve(LLAMA_CPP))).model == "ollama:tiny:latest"
    assert choose({}, at(None, serve(LM_STUDIO), serve(LLAMA_CPP))).model == "lmstudio:awake"


def garbage(data: bytes):
    return lambda handler: handler.wfile.write(data)


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/api/version": {}, "/props": {}, "/api/v0/models": {}, "/v1/models": {}},
        {"/api/version": ["0.1"], "/api/tags": [], "/api/v0/models": [1], "/props": "x"},
        {"/api/version": {"version": 3}, "/api/tags": {"models": [{"name": "tiny"}]}},
        {"/api/version": {"version": "0.13.0"}, "/api/tags": {"models": []}},
        {"/v1/models": {"object": "list", "data": [{"id": "gpt", "object": "model"}]}, "/health": {"status": "ok"}},
        {"/api/v0/models": {"object": "list", "data": [{"id": "x", "object": "model", "type": "llm", "state": "loaded"}]}},
        {path: garbage(b"SSH-2.0-OpenSSH\r\n") for path in ("/api/version", "/api/v0/models", "/props")},
        {path: garbage(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{{{") for path in ("/api/version", "/props")},
    ],
    ids=range(9),
)  # fmt: skip
def test_an_open_port_is_not_enough(serve, answers):
    server = serve(answers)
    assert choose({}, at(server, server, server)).model == "offline:demo"


def test_a_server_that_never_answers_does_not_hold_the_run_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        silent = types.SimpleNamespace(port=listener.getsockname()[1])
        found = []
        asking = threading.Thread(target=lambda: found.append(choose({}, at(silent, silent, silent)).model))
        asking.start()
        asking.join(10)
        assert found == ["offline:demo"]


def test_a_server_that_drips_its_answer_does_not_hold_the_run_up(serve):
    def drip(handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while not server.released.wait(0.05):
            handler.wfile.write(b" ")

    server = serve({"/api/version": drip})
    found = []
    asking = threading.Thread(target=lambda: found.append(choose({}, at(server, None, None)).model))
    asking.start()
    asking.join(10)
    assert found == ["offline:demo"]


def test_proxies_are_not_asked_for_loopback(serve, monkeypatch):
    proxy, server = serve({}), serve(OLLAMA)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert choose(os.environ | {"TREADLE_MODEL_REQUESTS": ""}, at(server, None, None)).model == "ollama:tiny:latest"
    assert proxy.requests == []


@pytest.mark.parametrize("word", ["deny", " DENY "])
def test_nothing_is_asked_where_requests_are_denied(serve, word):
    server = serve(OLLAMA)
    assert choose({"TREADLE_MODEL_REQUESTS": word}, at(server, server, server)).model == "offline:demo"
    assert server.requests == []


def test_the_order_is_the_variable_then_keys_then_servers_then_the_stand_in(serve):
    server = serve(OLLAMA)
    servers = at(server, None, None)
    keys = {default.key: "k" for default in DEFAULTS}
    assert choose({"TREADLE_MODEL": "groq:x", **keys}, servers).model == "groq:x"
    assert choose(keys, servers).model == f"{DEFAULTS[0].provider}:{DEFAULTS[0].model}"
    assert server.requests == []
    for default in DEFAULTS:
        choice = choose({default.key: "k"}, servers)
        assert choice.model == f"{default.provider}:{default.model}"
        assert default.key in choice.why
    assert choose({"TREADLE_MODEL": " ", DEFAULTS[0].key: ""}, servers).model == "ollama:tiny:latest"
    assert choose({}, []).model == "offline:demo"


def test_every_default_is_a_model_that_there_is():
    for default in DEFAULTS:
        assert resolve(f"{default.provider}:{default.model}").capabilities.tools


def test_the_stand_in_names_only_variables_that_would_work():
    why = choose({}, []).why
    assert why.startswith("no model configured: using the offline stand-in")
    assert [word.strip(",;") for word in why.split() if "_KEY" in word] == [default.key for default in DEFAULTS]


def test_the_program_finds_a_server_and_uses_it(treadle, serve, chat):
    """On Ollama's own port, if it is free here."""
    ollama = next(server for server in LOCAL_SERVERS if server.provider == "ollama")
    try:
        server = serve(OLLAMA, ollama.port)
    except OSError:
        pytest.skip(f"port {ollama.port} is taken")
    del treadle.environ["OPENAI_API_KEY"]
    server.answers["/v1/chat/completions"] = chat(text("Hello ", "you")).server.answers["/v1/chat/completions"]
    outcome = treadle("run", "hi")
    assert (outcome.code, outcome.out) == (0, "Hello you\n")
    assert outcome.err.splitlines()[0].startswith("using ollama:tiny:latest (Ollama answers on port 11434;")
