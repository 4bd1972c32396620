"""What holds for the package as a whole."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import treadle
import treadle.providers
import treadle.testing
import treadle.toolkit

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
DOCUMENTED = re.compile(r"^\s*\.\. auto(?:class|function|exception|data|attribute):: (treadle[\w.]*)", re.MULTILINE)


def python(code: str) -> str:
    """What `code` prints in a fresh interpreter that measures no coverage, since that loads modules of its own."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def modules_after(code: str) -> set[str]:
    return set(python(f"import sys; {code}; print('\\n'.join(sys.modules))").split())


def documented(package: str) -> set[str]:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md"))
    names = [name.rsplit(".", 1) for name in DOCUMENTED.findall(pages)]
    return {name for module, name in names if module == package}


def test_importing_treadle_prints_nothing():
    assert python("import treadle") == ""


def test_importing_treadle_loads_no_heavy_library_and_few_modules():
    before = modules_after("import asyncio, msgspec")
    loaded = modules_after("import treadle")
    new = loaded - before
    heavy = {"pydantic", "pydantic_core", "httpx2", "httpcore2", "docstring_parser", "ssl", "pytest", "argparse"} & new
    assert not heavy
    assert len(new) <= 60, sorted(new)


def test_naming_a_model_of_a_provider_loads_no_vendor_sdk():
    loaded = modules_after("import treadle; treadle.Agent('openai-chat:some-model')")
    assert not {"openai", "anthropic", "google", "pydantic"} & loaded


def test_importing_any_room_leaves_no_thread_and_no_event_loop_behind():
    rooms = "treadle.cli, treadle.testing, treadle.toolkit, treadle.providers, treadle.manifest"
    assert python(f"import threading, {rooms}; print(threading.active_count())") == "1\n"


def test_the_public_names_are_all_there_and_each_once():
    assert len(set(treadle.__all__)) == len(treadle.__all__)
    for name in treadle.__all__:
        assert hasattr(treadle, name)


def test_nothing_public_stands_in_the_package_without_being_listed():
    submodules = {path.stem for path in (ROOT / "src" / "treadle").iterdir()}
    public = {name for name in vars(treadle) if name.isidentifier() and not name.startswith("_")} - submodules
    assert public - set(treadle.__all__) <= {"annotations", "TYPE_CHECKING", "logging"}


def test_every_public_name_is_in_the_reference():
    listed = {name for name in treadle.__all__ if not name.startswith("__")}
    assert documented("treadle") == listed
    assert documented("treadle.testing") == set(treadle.testing.__all__)
    assert documented("treadle.toolkit") == set(treadle.toolkit.__all__)


def test_the_option_table_of_the_docs_names_every_option_of_an_agent_and_its_default():
    page = (REFERENCE / "agent.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`)? ?\|", page, re.MULTILINE)
    options = [
        option for option in inspect.signature(treadle.Agent.__init__).parameters.values() if option.name != "self"
    ]
    assert [name for name, _ in rows] == [option.name for option in options]
    for (name, default), option in zip(rows, options, strict=True):
        if default:
            assert eval(default, {"Limits": treadle.Limits, "Retry": treadle.Retry}) == option.default, name
        else:
            assert option.default is option.empty, name


def test_the_provider_table_of_the_docs_names_every_prefix():
    page = (REFERENCE / "models.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) == set(treadle.providers._MODELS)


def test_every_public_class_and_function_says_what_it_is():
    undescribed = [
        name
        for name in treadle.__all__
        if callable(value := getattr(treadle, name)) and getattr(value, "__module__", "").startswith("treadle")
        if not (value.__doc__ or "").strip()
    ]
    assert not undescribed


def test_the_error_tree_in_the_docstring_is_the_tree():
    _, drawing = (treadle.errors.__doc__ or "").split("\n\n", 1)
    names: list[str] = []
    above: list[str] = []
    for line in textwrap.dedent(drawing).splitlines():
        branches, name = re.match(r"([│├└─ ]*)(\w+)", line).groups()
        del above[len(branches) // 4 :]
        bases = [base.__name__ for base in getattr(treadle.errors, name).__bases__]
        assert above[-1:] == [] or above[-1] in bases
        above.append(name)
        names.append(name)
    kinds = [kind for kind in vars(treadle.errors).values() if isinstance(kind, type)]
    defined = [kind.__name__ for kind in kinds if issubclass(kind, treadle.TreadleError)]
    assert sorted(names) == sorted(defined)


def test_the_event_table_of_the_docs_names_every_event_and_field():
    page = (REFERENCE / "events.md").read_text(encoding="utf-8")
    rows = {row[0]: row for row in re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([^|]*) \|", page, re.MULTILINE)}
    classes = {kind.__struct_config__.tag: kind for kind in treadle.Event.__args__}
    assert rows.keys() == classes.keys()
    for tag, kind in classes.items():
        own = [field for field in kind.__struct_fields__ if field not in ("run_id", "seq")]
        assert rows[tag][1] == kind.__name__
        assert sorted(re.findall(r"`(\w+)`", rows[tag][2])) == sorted(own), tag


def test_the_part_table_of_the_docs_names_every_part_and_field():
    page = (REFERENCE / "messages.md").read_text(encoding="utf-8")
    rows = {row[0]: row for row in re.findall(r"^\| `(\w+)` \| `(\w+)` \| ([^|]*) \|", page, re.MULTILINE)}
    for kind in treadle.Part.__args__:
        tag = kind.__struct_config__.tag
        assert rows[tag][1] == kind.__name__
        assert re.findall(r"`(\w+)`", rows[tag][2]) == list(kind.__struct_fields__), tag


def test_the_wheel_promises_types_and_a_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (ROOT / "src" / "treadle" / "py.typed").exists()
    assert "Typing :: Typed" in project["classifiers"]
    for name in project["license-files"]:
        assert (ROOT / name).read_text(encoding="utf-8").strip()


def test_the_changelog_speaks_of_the_version_or_of_what_is_unreleased():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {project['version']}" in changelog or "## Unreleased" in changelog
