"""Which model a run without `-m` gets. The defaults below are the command line's alone: the library has none."""

from __future__ import annotations

import json
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Get: TypeAlias = Callable[[str], Any]


class Default(NamedTuple):
    """A provider, the variable that holds its key, and the model that is taken when the key is set."""

    provider: str
    key: str
    model: str


DEFAULTS = (
    Default("anthropic", "ANTHROPIC_API_KEY", "claude-sonnet-5"),
    Default("openai", "OPENAI_API_KEY", "gpt-5-mini"),
    Default("google", "GEMINI_API_KEY", "gemini-2.5-flash"),
    Default("mistral", "MISTRAL_API_KEY", "mistral-small-latest"),
    Default("groq", "GROQ_API_KEY", "openai/gpt-oss-120b"),
    Default("deepseek", "DEEPSEEK_API_KEY", "deepseek-v4-flash"),
)

OFFLINE = "offline:demo"
OFFLINE_NOTE = "using the offline stand-in, which follows fixed rules and is no language model"
PROBE_SECONDS = 0.3  # for each answer; loopback answers in a few milliseconds
MAX_PROBE_SECONDS = 1.0  # for all of them
_MAX_ANSWER_BYTES = 4 * 1024 * 1024


class LocalServer(NamedTuple):
    """A server that may run on this machine. `model` tells by its identity endpoint which model it has, or None."""

    label: str
    provider: str
    port: int
    model: Callable[[Get], str | None]


class Choice(NamedTuple):
    """A model, where it answers if that is not its provider's usual place, and the line that says why."""

    model: str
    base_url: str | None
    why: str


def choose(environ: Mapping[str, str], servers: Sequence[LocalServer] | None = None) -> Choice:
    """The model by `TREADLE_MODEL`, by a key that is set, by a local server that answers, or the offline stand-in."""
    if named := environ.get("TREADLE_MODEL", "").strip():
        return Choice(named, None, f"using {named} (TREADLE_MODEL)")
    for default in DEFAULTS:
        if environ.get(default.key):
            model = f"{default.provider}:{default.model}"
            return Choice(model, None, f"using {model} ({default.key} is set; -m or TREADLE_MODEL chooses another)")
    if environ.get("TREADLE_MODEL_REQUESTS", "").strip().lower() != "deny":
        for server, name in _answering(LOCAL_SERVERS if servers is None else servers):
            model = f"{server.provider}:{name}"
            why = f"using {model} ({server.label} answers on port {server.port}; -m or TREADLE_MODEL chooses another)"
            return Choice(model, f"http://127.0.0.1:{server.port}/v1", why)
    keys = ", ".join(default.key for default in DEFAULTS)
    return Choice(OFFLINE, None, f"no model configured: {OFFLINE_NOTE}; set {keys} or start Ollama")


def _answering(servers: Sequence[LocalServer]) -> list[tuple[LocalServer, str]]:
    """The servers that are there and have a model, in the order given. All are asked at the same time."""
    answers: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
    for index, server in enumerate(servers):
        threading.Thread(target=_ask, args=(index, server, answers), daemon=True).start()
    found: dict[int, str] = {}
    deadline = time.monotonic() + MAX_PROBE_SECONDS
    for _ in servers:
        try:
            index, model = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        if model:
            found[index] = model
    return [(servers[index], found[index]) for index in sorted(found)]


def _ask(index: int, server: LocalServer, answers: queue.SimpleQueue[tuple[int, str | None]]) -> None:
    model = None
    try:
        model = server.model(lambda path: _get(server.port, path))
    except Exception:  # noqa: BLE001 - whatever else listens there may answer anything
        model = None
    finally:
        answers.put((index, model))


def _get(port: int, path: str) -> Any:
    """The JSON that the server on this loopback port answers. Knows no proxy and follows no redirect."""
    from http.client import HTTPConnection

    connection = HTTPConnection("127.0.0.1", port, timeout=PROBE_SECONDS)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        return json.loads(response.read(_MAX_ANSWER_BYTES)) if response.status == 200 else {}
    finally:
        connection.close()


def _ollama(get: Get) -> str | None:
    """Ollama's REST reference (docs/api.md, looked at in 2026): `/api/version` is its own, `/api/tags` its models."""
    if not isinstance(get("/api/version")["version"], str):
        return None
    return _first_name([entry["name"] for entry in get("/api/tags")["models"]])


def _lm_studio(get: Get) -> str | None:
    """LM Studio's REST reference (v0 and v1, looked at in 2026): a loaded model first, else one it would load."""
    models = [
        (entry["state"] != "loaded", entry["id"])
        for entry in get("/api/v0/models").get("data", ())
        if entry["type"] in ("llm", "vlm") and "compatibility_type" in entry
    ] or [
        (not entry["loaded_instances"], entry["key"])
        for entry in get("/api/v1/models").get("models", ())
        if entry["type"] == "llm"
    ]
    return _first_name([name for _, name in sorted(models, key=lambda model: model[0])])


def _llama_cpp(get: Get) -> str | None:
    """llama.cpp's server (tools/server/README.md, looked at in 2026): `/props` is its own."""
    props = get("/props")
    if "default_generation_settings" not in props or "total_slots" not in props:
        return None
    return _first_name([entry["id"] for entry in get("/v1/models")["data"]])


def _first_name(names: Sequence[Any]) -> str | None:
    return next((name for name in names if isinstance(name, str) and name), None)


LOCAL_SERVERS = (
    LocalServer("Ollama", "ollama", 11434, _ollama),
    LocalServer("LM Studio", "lmstudio", 1234, _lm_studio),
    LocalServer("llama.cpp", "llamacpp", 8080, _llama_cpp),
)
