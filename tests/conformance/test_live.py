"""`make live` as far as it goes without a real provider: against servers on loopback that answer as one would."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from support import spoken as said
from treadle import AuthenticationError, InvalidRequestError, StopReason, ToolCallPart
from treadle.testing.conformance import Answer, Failure, Reply, Seen, Server, Spoken, TokenCount

ROOT = Path(__file__).parents[2]
PONG = Answer(("pong",))
WIRES = {
    "/messages": said.claude_wire,
    "/responses": said.responses_wire,
    "/chat/completions": said.chat_wire,
    "/models/": said.google_wire,
}


def vendor(seen: Seen) -> Reply:
    """Answers like a model that is good at sums."""
    wire = next(wire for path, wire in WIRES.items() if path in seen.path)
    return wire(answer_to(seen))


def answer_to(seen: Seen) -> Spoken:
    text = seen.body.decode()
    if "wrong-key" in str(seen.headers):
        return Failure(AuthenticationError, 401, "no such key: wrong-key-0123456789")
    if "no-such-model" in text + seen.path:
        return Failure(InvalidRequestError, 404, "no such model")
    if re.search("count_tokens|input_tokens|countTokens", seen.path):
        return TokenCount(42)
    if "capital of France" in text:
        return Answer((json.dumps({"France": "Paris"}),))
    if "48151" in text:
        return answer_to_sum(text)
    if "forty lines" in text:
        return Answer(("Once upon",), StopReason.MAX_TOKENS)
    return Answer(tuple(f"{number} " for number in range(60))) if "Count from" in text else PONG


def answer_to_sum(text: str) -> Spoken:
    for result, a, b in ((110493, 48151, 62342), (110500, 110493, 7)):
        asked = result == 110493 or "plus 7" in text
        if asked and not re.search(rf"(\D|^){result}(\D|$)", text):
            call = ToolCallPart(f"call{result}", "add", json.dumps({"a": a, "b": b}))
            return Answer((call,), StopReason.TOOL_CALLS)
    return Answer(("It is ", "110500." if "plus 7" in text else "110493."))


def asked_paths(server: Server) -> set[str]:
    return {path for path in WIRES for seen in server.requests if path in seen.path}


async def live(*arguments: str, **environment: str) -> tuple[int, str]:
    """The exit code and the output of the live suite. No key of this machine reaches it."""
    kept = {name: value for name, value in os.environ.items() if not re.search("_API_KEY$|_BASE_URL$|^CI$", name)}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pytest", "tests/live/live.py", "--noconftest", "-q", "-rs", "-p", "no:cacheprovider", *arguments),
        cwd=ROOT,
        env={**kept, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 120)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_the_providers_whose_keys_are_set_are_asked_and_the_others_named():
    async with Server(replies=vendor) as server:
        code, output = await live(
            *("-k", "not odd_text"),
            ANTHROPIC_API_KEY="key-1",
            ANTHROPIC_BASE_URL=server.url,
            GEMINI_API_KEY="key-2",
            GOOGLE_BASE_URL=server.url,
        )
    assert code == 0, output
    passed = int(re.search(r"(\d+) passed", output)[1])
    assert passed > 2 * 20, output
    assert "mistral:mistral-small-latest: MISTRAL_API_KEY is not set" in output
    assert "lacks script: a real model says what it wants" in output
    assert "ANTHROPIC_API_KEY" not in output
    assert asked_paths(server) == {"/messages", "/models/"}


async def test_models_may_be_named():
    async with Server(replies=vendor) as server:
        addresses = {"OLLAMA_BASE_URL": f"{server.url}/v1", "OPENAI_BASE_URL": f"{server.url}/v1"}
        named = {"TREADLE_LIVE_MODELS": "ollama:qwen3 openai:gpt-5", "OPENAI_API_KEY": "key-1"}
        code, output = await live("-k", "answers_and or goes_round", **named, **addresses)
    assert code == 0, output
    assert "4 passed" in output
    assert asked_paths(server) == {"/chat/completions", "/responses"}
    assert {json.loads(seen.body)["model"] for seen in server.requests} == {"qwen3", "gpt-5"}


async def test_a_provider_that_answers_nonsense_fails():
    async with Server(replies=[said.claude_wire(Answer(("I know nothing.",), StopReason.REFUSAL))]) as server:
        options = {"ANTHROPIC_API_KEY": "key-1", "ANTHROPIC_BASE_URL": server.url}
        code, output = await live("-k", "answers_and or goes_round", **options)
    assert code == 1
    assert "2 failed" in output


def test_nothing_is_asked_in_ci(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.skip.Exception, match="real providers are never asked in CI"):
        runpy.run_path(str(ROOT / "tests" / "live" / "live.py"))


def test_no_other_command_collects_it():
    assert not [path for path in (ROOT / "tests" / "live").iterdir() if path.name.startswith("test_")]
