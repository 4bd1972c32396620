"""`local:` models: the server that they start, and a real one where there is one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from support.program import BOUND, finish, wait_for
from treadle import (
    Agent,
    ConfigError,
    Limits,
    ModelConnectionError,
    ModelRequestsDenied,
    ModelSettings,
    RunError,
    RunFinish,
    ToolFinish,
    ToolStart,
    decode_event,
)
from treadle.providers import resolve
from treadle.providers.local import LocalModel
from treadle.toolkit import Workspace

HERE = Path(__file__).parent
TEMPLATE = HERE / "chatml-tools.jinja"


@pytest.fixture
def fake(monkeypatch) -> str:
    """Where the stand-in for llama.cpp is; it is taken in this process and in those that it starts."""
    folder = str(HERE / "fake_xllamacpp")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", folder)
    monkeypatch.delenv("TREADLE_MODEL_REQUESTS", raising=False)
    return folder


@pytest.fixture
def weights(tmp_path: Path):
    """Makes a model file that holds the given words."""

    def make(words: str = "") -> Path:
        (tmp_path / "tiny.gguf").write_text(words)
        return tmp_path / "tiny.gguf"

    return make


def connect(weights: Path) -> socket.socket:
    """A connection to the server of a model file: at its end when the server is gone."""
    return socket.create_connection(("127.0.0.1", int(Path(f"{weights}.port").read_text())), timeout=BOUND)


def gone(connection: socket.socket) -> bool:
    """Waits until the other end of `connection` is no more."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


async def told(model: LocalModel) -> dict[str, object]:
    return json.loads((await asyncio.wait_for(Agent(model).run("hi"), BOUND)).text)


async def test_the_first_request_starts_a_server_of_our_own_and_aclose_stops_it(fake, weights, tmp_path):
    (tmp_path / "chat.jinja").write_text("{{ messages }}")
    seconds: list[float] = []
    model = LocalModel(weights(), chat_template=tmp_path / "chat.jinja", context_tokens=999, on_load=seconds.append)
    try:
        assert await told(model) == {
            "template": "{{ messages }}",
            "policy": "passive",
            "host": ["127.0.0.1"],
            "alias": [str(weights())],
            "asked": str(weights()),
            "context": 999,
        }
        assert seconds and seconds == sorted(seconds)
        first = connect(weights())
        await told(model)  # by the same server
        assert int(Path(f"{weights()}.port").read_text()) == first.getpeername()[1]
    finally:
        await model.aclose()
    with first:
        assert gone(first)
    await told(model)  # starts another one
    await model.aclose()


async def test_a_server_that_is_still_loading_is_waited_for(fake, weights):
    model = LocalModel(weights("slow"))
    assert await told(model)
    await model.aclose()


async def test_two_runs_at_once_share_one_server(fake, weights):
    model = LocalModel(weights("slow"))
    answers = await asyncio.gather(told(model), told(model))
    assert answers[0] == answers[1]
    await model.aclose()


def test_runs_on_two_event_loops_share_one_server(fake, weights):
    model = LocalModel(weights())
    asyncio.run(told(model))
    port = Path(f"{weights()}.port").read_text()
    asyncio.run(told(model))
    assert Path(f"{weights()}.port").read_text() == port
    asyncio.run(model.aclose())


async def test_a_model_that_is_dropped_takes_its_server_with_it(fake, weights):
    model = LocalModel(weights())
    await told(model)
    with connect(weights()) as connection:
        del model
        import gc

        gc.collect()
        assert gone(connection)


async def test_a_file_that_cannot_be_loaded_is_a_config_error_with_the_servers_own_reason(fake, weights):
    model = LocalModel(weights("broken"))
    with pytest.raises(RunError, match=r"llama\.cpp cannot serve .*tiny\.gguf: load: not a model") as caught:
        await told(model)
    assert isinstance(caught.value.__cause__, ConfigError)
    await model.aclose()


async def test_a_server_that_dies_in_an_answer_is_an_error_and_the_next_request_starts_another(fake, weights):
    model = LocalModel(weights("dies"))
    with pytest.raises(RunError) as caught:
        await told(model)
    assert isinstance(caught.value.__cause__, ModelConnectionError)
    weights("well now")
    assert await told(model)
    await model.aclose()


async def test_a_proxy_in_the_environment_is_not_used(fake, weights, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    model = LocalModel(weights())
    assert await told(model)
    await model.aclose()


async def test_leaving_an_answer_early_leaves_nothing_behind(fake, weights):
    model = LocalModel(weights("stalls"))
    async with Agent(model).stream("hi") as run:
        async for event in run:
            if type(event).__name__ == "TextDelta":
                break
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await model.aclose()


async def test_what_is_missing_is_said_with_the_fix(weights, tmp_path, monkeypatch):
    monkeypatch.delenv("TREADLE_MODEL_REQUESTS", raising=False)
    with pytest.raises(RunError, match=r"no model file .*none\.gguf"):
        await told(LocalModel(tmp_path / "none.gguf"))
    with pytest.raises(RunError, match=r"chat template .*none\.jinja cannot be read"):
        await told(LocalModel(weights(), chat_template=tmp_path / "none.jinja"))
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(RunError, match=r'pip install "treadle\[local\]"') as caught:
        await told(LocalModel(weights()))
    assert isinstance(caught.value.__cause__, ConfigError)
    with pytest.raises(ConfigError, match="local:"):
        resolve("local:")


async def test_nothing_is_started_where_requests_are_denied(fake, weights, monkeypatch):
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
    with pytest.raises(RunError) as caught:
        await told(LocalModel(weights()))
    assert isinstance(caught.value.__cause__, ModelRequestsDenied)
    assert not Path(f"{weights()}.port").exists()


# The command line


@pytest.fixture
def program(treadle, fake):
    treadle.environ |= {"PYTHONPATH": fake, "TREADLE_MODEL_REQUESTS": ""}
    return treadle


def test_the_command_line_tells_that_it_loads_and_stops_the_server(program, weights):
    outcome = program("run", "-m", f"local:{weights()}", "hi")
    assert outcome.code == 0
    assert outcome.err.splitlines()[1] == "loading tiny.gguf ... 0 s"
    with pytest.raises(ConnectionRefusedError):
        connect(weights())


def test_the_command_line_says_in_one_line_why_a_file_cannot_be_loaded(program, weights):
    outcome = program("run", "-m", f"local:{weights('broken')}", "hi")
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].startswith("treadle: llama.cpp cannot serve ")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_is_gone_when_the_program_is_however_that_ends(program, weights, how):
    process = program.start("run", "-m", f"local:{weights('stalls')}", "hi")
    wait_for(process, process.stdout, b"template")
    with connect(weights()) as connection:
        process.send_signal(how)
        assert finish(process).code == {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[how]
        assert gone(connection)


def real_model() -> Path | None:
    """A real model: the file that `TREADLE_TEST_GGUF` names, or one in `.local-llm` of this repository."""
    named = os.environ.get("TREADLE_TEST_GGUF")
    found = [Path(named)] if named else sorted((HERE.parents[1] / ".local-llm").glob("*.gguf"))
    return next((path for path in found if path.is_file()), None)


@pytest.fixture
def real() -> Path:
    pytest.importorskip("xllamacpp", reason="the extra `local` is not installed")
    if (path := real_model()) is None:
        pytest.skip("no model: TREADLE_TEST_GGUF names none, and .local-llm has none")
    return path


async def test_a_real_model_reads_a_file_and_answers_from_it(real, tmp_path, monkeypatch):
    monkeypatch.delenv("TREADLE_MODEL_REQUESTS", raising=False)
    (tmp_path / "notes.txt").write_text("The meeting is on Thursday at noon.\n")
    model = LocalModel(real, chat_template=TEMPLATE)
    # Sampled, a model of this size now and then invents arguments; what it finds most likely stays the same.
    agent = Agent(
        model, tools=Workspace(tmp_path).read_only(), settings=ModelSettings(temperature=0), limits=Limits(steps=6)
    )
    try:
        result = await asyncio.wait_for(agent.run("Read the file notes.txt. When is the meeting?"), 300)
    finally:
        await model.aclose()
    assert [call.name for call in result.steps[0].calls] == ["read_file"]
    assert "Thursday" in result.steps[0].results[0].content
    assert "Thursday" in result.text
    assert result.usage.input_tokens > 0


def test_a_real_model_runs_from_the_command_line(real, treadle):
    """Sampled, so what it says is its own affair; that the run is whole and ends as documented is ours."""
    treadle.environ["TREADLE_MODEL_REQUESTS"] = ""
    model = ("-m", f"local:{real}", "--chat-template", str(TEMPLATE), "--max-steps", "6")
    process = treadle.start("run", *model, "--json", "Read the file notes.txt.")
    out, err = process.communicate(timeout=300)
    events = [decode_event(line) for line in out.splitlines()]
    assert [event.seq for event in events] == list(range(len(events)))
    assert isinstance(events[-1], RunFinish)
    expected = {"end": 0, "max_steps": 3, "budget": 3, "max_tokens": 3, "error": 1}[events[-1].stop]
    assert process.returncode == expected, err
    starts = [event.call_id for event in events if isinstance(event, ToolStart)]
    assert sorted(starts) == sorted(event.call_id for event in events if isinstance(event, ToolFinish))
    assert err.startswith(b"loading ")
    assert b"Traceback" not in err
