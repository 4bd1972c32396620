"""`treadle sessions` as it is started."""

from __future__ import annotations

import asyncio
import json

import pytest

from treadle.cli import main
from treadle.cli.chat.presence import Presence
from treadle.cli.settings import paths
from treadle.cli.stored import session_store


@pytest.fixture
def sessions(tmp_path, monkeypatch, capsys):
    """Runs `treadle sessions` and gives the exit code and what it printed; `store` keeps what two runs said."""
    environ = {"TREADLE_HOME": str(tmp_path / "home")}
    monkeypatch.setenv("TREADLE_HOME", environ["TREADLE_HOME"])
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["sessions", *arguments])
        return code, *capsys.readouterr()

    run.store = session_store(".", environ)
    run.presence = Presence(paths(environ).state_dir / "open")
    run.folder = tmp_path
    for name in ("monday", "tuesday"):
        assert main(["run", "-m", "offline:demo", "--session", name, f"Hello \x1b]0;x\x07 on {name}."]) == 0
    capsys.readouterr()
    return run


def test_sessions_are_listed_with_the_newest_first(sessions):
    code, out, _ = sessions()
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["tuesday", "monday"]
    assert "\x1b" not in out
    assert [one["id"] for one in json.loads(sessions("list", "--json")[1])] == ["tuesday", "monday"]
    (sessions.folder / "other").mkdir()
    assert sessions("list", "--root", "../other")[1] == "no sessions are stored yet\n"
    assert sessions("list", "--root", "../nowhere")[0] == 2


def test_a_session_is_exported_to_a_new_file_or_printed(sessions):
    assert sessions("export", "mon")[1].startswith("# Session monday\n")
    assert json.loads(sessions("export", "mon", "--json")[1])["session"] == "monday"
    assert sessions("export", "monday", "out.json")[0] == 0
    assert json.loads((sessions.folder / "work" / "out.json").read_text())["session"] == "monday"
    assert sessions("export", "tuesday", "out.json")[0::2] == (
        2,
        "treadle: out.json is there already; name another file\n",
    )
    code, _, err = sessions("export", "friday")
    assert (code, err) == (2, "treadle: no session begins with 'friday'; treadle sessions list lists them\n")


def test_a_terminal_gets_nothing_but_the_text_of_a_session(sessions, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    out = sessions("export", "monday")[1]
    assert "on monday" in out
    assert "\x1b" not in out


def test_a_session_is_removed_by_its_whole_id_alone(sessions):
    path = sessions.store.path("monday")
    path.with_suffix(".damaged").write_text("torn\n")
    for wrong in ("mon", "../monday"):
        assert sessions("remove", wrong)[0] in (1, 2)
    assert path.exists()
    assert sessions("remove", "monday")[:2] == (0, "session monday is removed\n")
    assert [entry.name for entry in path.parent.iterdir()] == ["tuesday.jsonl"]


def test_a_session_that_somebody_works_with_is_not_removed(sessions):
    async def while_claimed() -> tuple[int, str, str]:
        async with sessions.store.claim("monday"):
            return await asyncio.to_thread(sessions, "remove", "monday")

    assert "is in use by this process" in asyncio.run(while_claimed())[2]
    sessions.presence.move_to("monday")
    code, _, err = sessions("remove", "monday")
    assert (code, "is open in another client" in err) == (1, True)
    sessions.presence.leave()
    assert sessions("remove", "monday")[0] == 0


def test_a_session_that_cannot_be_read_is_told_and_can_be_removed(sessions):
    sessions.store.path("monday").write_text('{"format":9,"session":"monday","created":1}\n')
    _, out, err = sessions("list")
    assert "monday" not in out and "left out of the list" in err and "later version" in err
    assert sessions("remove", "monday")[0] == 0
