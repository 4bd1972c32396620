"""The folder of recorded provider traffic: which wire each recording is of, and what came of replaying them."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from treadle.errors import (
    AuthenticationError,
    ContextOverflowError,
    InvalidRequestError,
    ModelError,
    ModelResponseError,
    OverloadedError,
    RateLimitError,
)
from treadle.providers import _MODELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("TREADLE_RECORDINGS") or REPOSITORY.parent / "shared" / "recordings")
TABLE = REPOSITORY / "build" / "recordings.md"

# A piece of the path tells the wire; those of the second table are spoken by no adapter.
_WIRES = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "anthropic",
    ":generateContent": "google",
    ":streamGenerateContent": "google",
    ":countTokens": "google",
}
_OTHER_APIS = {
    "/interactions": "the Interactions API is another wire format, and stores conversations at Google",
    "/api/chat": "Ollama's own API is another wire format: `ollama:` uses its Chat Completions",
}
# The prefix of `resolve` that a user would write for the provider of a recording, where it is another word.
_PREFIXES = {"openai-responses": "openai", "azure-chat": "azure", "xai-chat": "xai", "google-vertex": "google"}

# What we know of the exchanges that are errors: the recording and the number of the exchange in it.
ERRORS: dict[tuple[str, int], type[ModelError]] = {
    ("azure-chat--real-error-scenarios-azure-grok-4-1-fast-non-reasoning-handles-context-length", 0): RateLimitError,
    ("deepseek--wire-shape-matrix-blocking-image-url-part-reaches-the-wire", 0): InvalidRequestError,
    ("groq--tool-use-failed-error", 0): ModelResponseError,
    ("groq--tool-use-failed-error-streaming", 0): ModelResponseError,
    ("llamacpp--structured-output-matrix-schema-and-grammar-conflict", 0): OverloadedError,
    ("mistral--logprobs-rejection-matrix-blocking-ministral-3b", 0): InvalidRequestError,
    (
        "ollama--real-error-scenarios-ollama-cloud-gpt-oss-120b-handles-context-length-exceeded",
        0,
    ): ContextOverflowError,
    ("openai-chat--o1-mini-system-role-system", 0): InvalidRequestError,
    (
        "openrouter--error-handling-with-openrouter-claude-haiku-4-5-raises-appropriate-auth-error",
        0,
    ): AuthenticationError,
    (
        "openrouter--real-error-scenarios-openrouter-claude-haiku-4-5-handles-context-length-exceed",
        0,
    ): ContextOverflowError,
    ("anthropic--error-identity-edge-auth-rejection-carries-identity", 0): AuthenticationError,
    ("anthropic--explicit-effort-xhigh-unsupported-model-errors", 0): InvalidRequestError,
    ("anthropic--model-name-suggestion-anthropic", 0): InvalidRequestError,
    ("deepseek-responses--rejects-interleaved-function-calls", 0): InvalidRequestError,
    ("openai-responses--background-mode-streaming-without-starting-after-vcr", 0): ModelResponseError,
    ("openai-responses--background-mode-streaming-without-starting-after-vcr", 1): ModelResponseError,
    ("openai-responses--error-handles-invalid-api-keys-gracefully", 0): AuthenticationError,
    (
        "openai-responses--error-identity-edge-nonexistent-previous-response-reference-carries-identity",
        0,
    ): InvalidRequestError,
    ("openai-responses--fixture-error-1", 0): RateLimitError,
    (
        "xai-responses--error-handling-with-xai-grok-4-1-fast-non-reasoning-raises-appropriate-auth-er",
        0,
    ): AuthenticationError,
    (
        "google--error-handling-with-gemini-gemini-2-5-flash-raises-appropriate-auth-error",
        0,
    ): AuthenticationError,
    (
        "google--real-error-scenarios-gemini-gemini-2-5-flash-handles-context-length-exceeded-e",
        0,
    ): RateLimitError,
    ("google--testgoogle-test-count-tokens-error", 0): InvalidRequestError,
    (
        "google-vertex--multimodal-tool-return-matrix-tool-return-content-url-image-google-vertex",
        3,
    ): InvalidRequestError,
}


class Recordings:
    """Recorded exchanges by name, and the server that replays them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        spec = importlib.util.spec_from_file_location("recordings_replay", folder / "replay.py")
        assert spec is not None
        assert spec.loader is not None
        self.replay: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.replay)
        self._stopping = ThreadPoolExecutor(4)

    def load(self, name: str) -> dict[str, Any]:
        if not (self.folder / f"{name}.json").is_file():
            pytest.skip(f"{name} is not in {self.folder}")
        loaded: dict[str, Any] = self.replay.load(name, str(self.folder))
        return loaded

    @contextlib.contextmanager
    def server(self, name: str, **options: Any) -> Iterator[Any]:
        server = self.replay.ReplayServer(self.load(name), **options).start()
        try:
            yield server
        finally:
            # Its own stop waits for a poll of 50 ms: nobody has to wait for that.
            self._stopping.submit(server.stop)


@functools.cache
def all_paths() -> dict[str, tuple[str, list[str]]]:
    """Each recording's provider and the paths that were asked for."""
    found = {}
    for file in sorted(FOLDER.glob("*--*.json")):
        recording = json.loads(file.read_text())
        paths = [exchange["request"]["path"].partition("?")[0] for exchange in recording["exchanges"]]
        found[file.stem] = (recording["provider"], paths)
    return found


def names_of(wire: str) -> list[str]:
    """The recordings of a wire: `chat`, `responses`, `anthropic`, `google`."""
    return [name for name, (_, paths) in all_paths().items() if wire in map(_wire, paths)]


def left_out() -> dict[str, str]:
    """The recordings that no adapter of ours can read, each with the reason."""
    found = {}
    for name, (_, paths) in all_paths().items():
        if not any(map(_wire, paths)):
            found[name] = next((why for piece, why in _OTHER_APIS.items() if piece in paths[0]), "")
    return found


def _wire(path: str) -> str | None:
    return next((wire for piece, wire in _WIRES.items() if piece in path), None)


def prefix_of(provider: str) -> str:
    """What a user writes before the model's name: a prefix of the provider's own, or one with a `base_url`."""
    prefix = _PREFIXES.get(provider, provider)
    return prefix if prefix in _MODELS else "openai" if provider.endswith("-responses") else "openai-chat"


def error_of(name: str, number: int, response: dict[str, Any]) -> type[ModelError] | None:
    """The error that an answer must be: of those we know the very class, else what its status says."""
    return ERRORS.get((name, number)) or failure_of(response)


def failure_of(response: dict[str, Any]) -> type[ModelError] | None:
    """The error that reading an answer must end in, as far as its status and its events tell."""
    status = response["status"]
    if status >= 400:
        kinds = {401: AuthenticationError, 403: AuthenticationError, 429: RateLimitError}
        return kinds.get(status, OverloadedError if status >= 500 else ModelError)
    return ModelError if any(_is_error(event) for event in _values(response["body"])) else None


def _values(body: str) -> list[Any]:
    if body.lstrip().startswith(("{", "[")):
        value = json.loads(body)
        return value if isinstance(value, list) else [value]
    lines = [line[5:].strip() for line in body.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line.startswith("{")]


def _is_error(value: dict[str, Any]) -> bool:
    """An error, or an answer that ran into one or was not waited for."""
    answer = value.get("response") or value
    last = value.get("type", "response.completed") in ("response.completed", "response.failed", "error")
    waiting = answer.get("object") == "response" and answer.get("status") in ("queued", "failed", "cancelled")
    return value.get("type") == "error" or bool(value.get("error")) or (last and waiting)


# The table


class Tally:
    """What became of each recording, from the reports of its tests."""

    def __init__(self) -> None:
        self._outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def take(self, properties: Iterable[tuple[str, Any]], outcome: str) -> None:
        for key, name in properties:
            if key == "recording":
                self._outcomes[name][outcome] += 1

    def lines(self) -> list[str]:
        """A Markdown table: recordings by provider that passed every test, that failed one, that were left out."""
        if not self._outcomes:
            return []
        rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for name, (provider, _) in all_paths().items():
            rows[provider][self._came_of(name)] += 1
        kinds = ("passed", "failed", "left out", "not run")
        lines = [f"| provider | {' | '.join(kinds)} |", "|---|---|---|---|---|"]
        for provider, counts in sorted(rows.items()):
            lines.append(f"| {provider} | {' | '.join(str(counts[kind]) for kind in kinds)} |")
        total = sum(rows.values(), Counter())
        lines.append(f"| all | {' | '.join(str(total[kind]) for kind in kinds)} |")
        reasons = sorted({f"{all_paths()[name][0]}: {why}" for name, why in left_out().items()})
        tests = sum(sum(outcomes.values()) for outcomes in self._outcomes.values())
        return [*lines, "", f"{tests} tests. Left out:", *(f"- {reason}" for reason in reasons)]

    def _came_of(self, name: str) -> str:
        if name in left_out():
            return "left out"
        outcomes = self._outcomes.get(name, Counter())
        return "failed" if outcomes["failed"] else "passed" if outcomes["passed"] else "not run"
