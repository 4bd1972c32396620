"""`find_files` and `search_content`: what they find, in which time, and what git and ripgrep say to it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.desk import Desk, until
from treadle.toolkit._glob import compile_glob
from treadle.toolkit._ignore import Rules
from treadle.toolkit._literal import required
from treadle.toolkit._supervisor import family

# Where the tests' own environment has a ripgrep, that one is meant.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
needs_ripgrep = pytest.mark.skipif(shutil.which("rg", path=PATH) is None, reason="ripgrep is not installed")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
ODD_NAMES = ["-n", "[a]b.txt", "ab.txt", "a\nb.txt", "a:1:b.txt", "--pre=x.sh", " lead", "ümlaut.txt", "{x,y}.txt"]


@pytest.fixture(autouse=True)
def path(monkeypatch) -> None:
    monkeypatch.setenv("PATH", PATH)


def plant(folder: Path, files: dict[str, str | bytes]) -> None:
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def tree(folder: Path) -> Path:
    plant(
        folder,
        {
            ".gitignore": "build/\n*.log\n!keep.log\n/top.txt\n",
            "build/out.py": "needle\n",
            "debug.log": "needle\n",
            "keep.log": "needle\n",
            "top.txt": "needle\n",
            "src/top.txt": "needle\n",
            "src/.gitignore": "*.tmp\n!/../debug.log\n",
            "src/x.tmp": "needle\n",
            "src/deep/x.tmp": "needle\n",
            "src/deep/code.py": "def needle():\n    return 'Needle'\n",
            ".github/ci.yml": "needle: true\n",
            ".git/config": "needle\n",
            "sub/.git": "needle",
            "sub/file.txt": "one\r\nneedle\r\ntwo\r\n",
            "binary": b"needle\0needle",
            "wide.txt": "needle in wide\n".encode("utf-16"),
            "latin.txt": b"caf\xe9 needle\n",
        },
    )
    (folder / "link.txt").symlink_to("keep.log")
    (folder / "out").symlink_to("../outside")
    return folder


# Names


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["src/deep/code.py", "src/main.py"]),
        ("src/*.py", ["src/main.py"]),
        ("src/**/*.py", ["src/deep/code.py", "src/main.py"]),
        ("**/deep/**", ["src/deep/code.py"]),
        ("**/code.*", ["src/deep/code.py"]),
        ("deep", ["src/deep/"]),
        ("*.{py,yml}", [".github/ci.yml", "src/deep/code.py", "src/main.py"]),
        ("README.??", ["README.md"]),
        ("[!a-z]*.md", ["README.md"]),
        ("/README.md", ["README.md"]),
        ("config", []),
        ("x.tmp", []),
        ("secret.txt", []),
        ("*.txt", ["latin.txt", "link.txt", "src/top.txt", "sub/file.txt", "wide.txt"]),
    ],
)
async def test_files_are_found_by_name_or_path_without_what_is_ignored(tree: Path, desk: Desk, pattern, found):
    told = await desk("find_files", pattern=pattern)
    assert told.splitlines() == (found or ["No file matches."])


async def test_a_path_narrows_and_the_pattern_is_about_what_is_below(tree: Path, desk: Desk):
    assert await desk("find_files", pattern="*.py", path="src/deep") == "src/deep/code.py"
    assert await desk("find_files", pattern="deep/*", path="./src/") == "src/deep/code.py"
    assert await desk("find_files", pattern="*.md", path="README.md") == "README.md"
    assert await desk("find_files", pattern="*.py", path=f"{tree}/src/deep") == "src/deep/code.py"
    # Who names an ignored directory wants to see it.
    assert await desk("find_files", pattern="*", path="build") == "build/out.py"
    assert await desk("find_files", pattern="*.tmp", path="src/deep") == "No file matches."
    assert "list_directory shows" in await desk.refusal("find_files", pattern="*", path="nothing")


async def test_odd_names_are_found_by_themselves_and_told_apart(folder: Path, desk: Desk):
    plant(folder, dict.fromkeys(ODD_NAMES, "needle\n"))
    everything = (await desk("find_files", pattern="*")).splitlines()
    assert len(set(everything)) == len(everything) == len(ODD_NAMES) + 3
    assert (await desk("find_files", pattern="[a]b.txt")).splitlines() == ["[a]b.txt", "ab.txt"]
    assert await desk("find_files", pattern="-n") == "-n"
    assert await desk("find_files", pattern="{x,y}.txt") == "{x,y}.txt"
    assert await desk("find_files", pattern="a\nb.txt") == "'a\\nb.txt'"


async def test_many_files_are_cut_with_a_word(folder: Path, desk: Desk):
    for number in range(1200):
        (folder / "src" / f"{number:04}.txt").touch()
    lines = (await desk("find_files", pattern="*.txt")).splitlines()
    assert (lines[0], lines[999]) == ("src/0000.txt", "src/0999.txt")
    assert lines[1000:] == ["[only the first 1000 are shown: narrow the pattern or the path]"]


# Content


async def test_matching_lines_come_with_their_numbers_by_file(tree: Path, desk: Desk):
    assert await desk("search_content", pattern="needle") == (
        ".github/ci.yml\n1: needle: true\n\nkeep.log\n1: needle\n\nlatin.txt\n1: café needle\n\n"
        "src/deep/code.py\n1: def needle():\n\nsrc/top.txt\n1: needle\n\nsub/file.txt\n2: needle\n\n"
        "wide.txt\n1: needle in wide"
    )


async def test_a_search_is_narrowed_by_path_and_glob(tree: Path, desk: Desk):
    assert await desk("search_content", pattern="(?i)NEEDLE'", path="src") == "src/deep/code.py\n2:     return 'Needle'"
    assert await desk("search_content", pattern="needle", glob="*.log") == "keep.log\n1: needle"
    assert await desk("search_content", pattern="needle", glob="deep/*.py", path="src") == (
        "src/deep/code.py\n1: def needle():"
    )
    assert await desk("search_content", pattern="needle", path="sub/file.txt") == "sub/file.txt\n2: needle"
    assert await desk("search_content", pattern="needle", path="link.txt") == "link.txt\n1: needle"
    assert await desk("search_content", pattern="nowhere") == "No line matches."


async def test_lines_around_a_match_are_shown_once(folder: Path, desk: Desk):
    plant(folder, {"src/a.txt": "".join(f"line {number}\n" for number in range(1, 21))})
    assert await desk("search_content", pattern="line (3|5|15)$", path="src/a.txt", context_lines=1) == (
        "src/a.txt\n2- line 2\n3: line 3\n4- line 4\n5: line 5\n6- line 6\n--\n14- line 14\n15: line 15\n16- line 16"
    )
    assert "0 to 20" in await desk.refusal("search_content", pattern="x", context_lines=21)
    assert "0 to 20" in await desk.refusal("search_content", pattern="x", context_lines=-1)


@pytest.mark.parametrize("ripgrep", [pytest.param(True, marks=needs_ripgrep), False])
@pytest.mark.parametrize("pattern", ["-77", "--pre=x.sh", "-f list", "[a]b", "a.b(c)*[", "$HOME", "\\d", "'; ls"])
async def test_a_literal_pattern_is_nothing_but_text(folder: Path, backend, pattern, ripgrep):
    plant(folder, {"odd.txt": f"x\n{pattern}\ny\n", "list": "x\n", "x.sh": "#!/bin/sh\ntouch ran\n"})
    (folder / "x.sh").chmod(0o755)
    desk = Desk(folder, backend, ripgrep=ripgrep)
    assert await desk("search_content", pattern=pattern, literal=True) == f"odd.txt\n2: {pattern}"
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("ripgrep", [pytest.param(True, marks=needs_ripgrep), False])
async def test_files_with_odd_names_are_searched(folder: Path, backend, ripgrep):
    plant(folder, dict.fromkeys(ODD_NAMES, "a needle\n"))
    told = await Desk(folder, backend, ripgrep=ripgrep)("search_content", pattern="needle")
    assert told.count("1: a needle") == len(ODD_NAMES)
    assert "'a\\nb.txt'\n1:" in told


async def test_long_lines_and_many_matches_are_cut_with_a_word(folder: Path, desk: Desk):
    plant(folder, {"long.txt": "x" * 5000 + "needle" + "y" * 5000 + "\n", "many.txt": "hay\n" * 5000})
    told = await desk("search_content", pattern="needle")
    assert "needle" in told and len(told) < 400 and told.count("...") == 2
    told = await desk("search_content", pattern="hay")
    assert told.endswith("\n[only the first 300 matching lines are shown: narrow the pattern or the path]")
    assert told.count("\n") == 301


async def test_a_large_file_is_not_searched_and_that_is_said(folder: Path, desk: Desk):
    with (folder / "large.txt").open("wb") as file:
        file.write(b"needle\n")
        file.truncate(9 << 20)
    assert await desk("search_content", pattern="n..dle") == (
        "No line matches.\n[not searched, because larger than 8 MiB: 1]"
    )


async def test_directories_that_are_too_deep_are_counted(folder: Path, desk: Desk):
    deep = folder.joinpath(*"d" * 80)
    deep.mkdir(parents=True)
    (deep / "file.txt").write_text("needle")
    assert "[directories that could not be looked into: 1]" in await desk("search_content", pattern="n.edle")


# Patterns that are wrong or run on


@pytest.mark.parametrize(
    "pattern", ["[", "(", "(?P<", "*", "a{99999999999}", "(?<=a*)b", "\\", "(" * 3000 + ")" * 3000]
)
async def test_a_pattern_that_is_none_is_refused_with_the_reason(desk: Desk, pattern):
    told = await desk.refusal("search_content", pattern=pattern)
    assert "no regular expression" in told or "simpler" in told


@pytest.mark.parametrize("pattern", ["", "x" * 100_000, "a\0b"])
@pytest.mark.parametrize("name", ["find_files", "search_content"])
async def test_a_pattern_of_no_sensible_length_is_refused(desk: Desk, name, pattern):
    assert "1 to 10000 characters" in await desk.refusal(name, pattern=pattern)
    assert "1 to 10000 characters" in await desk.refusal("search_content", pattern="x", glob=pattern)


async def test_a_pattern_that_matches_nothing_everywhere_ends(folder: Path, desk: Desk):
    assert await desk("search_content", pattern="x*", path="src") == "src/main.py\n1: print('hi')"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("search_content", {"pattern": "(a+)+$", "path": "bomb.txt"}),
        ("search_content", {"pattern": "^(\\w+\\s?)*$", "path": "."}),
        ("find_files", {"pattern": "*a" * 60 + "b"}),
    ],
)
async def test_a_pattern_that_runs_on_is_ended_in_time_and_the_loop_is_free(folder: Path, backend, name, arguments):
    plant(folder, {"bomb.txt": "a" * 40 + "!\n" + "word " * 30 + "!\n", "a" * 200: ""})
    desk = Desk(folder, backend, search_seconds=0.5)
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    begun = perf_counter()
    told = await desk.refusal(name, **arguments)
    ticking.cancel()
    assert "still running after 0.5 seconds" in told
    assert perf_counter() - begun < 20
    assert ticks > 20


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere memory is not bounded")
async def test_a_pattern_that_takes_all_memory_is_ended(folder: Path, desk: Desk):
    plant(folder, {"line.txt": "ab" * (3 << 20)})
    assert "too much memory" in await desk.refusal("search_content", pattern="((a|b)?)*c", path="line.txt")


@pytest.mark.parametrize("where", [".", "bin", "{folder}/bin", ""])
async def test_no_ripgrep_of_the_root_is_run(folder: Path, monkeypatch, where):
    plant(folder, {"odd.txt": "needle\n", "rg": "#!/bin/sh\ntouch ran\n", "bin/rg": "#!/bin/sh\ntouch ran\n"})
    for name in ("rg", "bin/rg"):
        (folder / name).chmod(0o755)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", f"{where.format(folder=folder)}:/usr/bin:/bin")
    assert await Desk(folder)("search_content", pattern="needle", literal=True) == "odd.txt\n1: needle"
    assert not (folder / "ran").exists()


async def test_a_cancelled_search_leaves_no_process(folder: Path, desk: Desk):
    plant(folder, {"bomb.txt": "a" * 40 + "!\n"})
    searching = asyncio.create_task(desk("search_content", pattern="(a+)+$"))
    await until(lambda: family(os.getpid()))
    searching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await searching
    assert not family(os.getpid())


async def test_a_search_whose_time_is_up_tells_what_it_found(folder: Path, backend):
    plant(folder, {f"{number:03}.txt": "hay stack " * 400 + "\n" for number in range(400)} | {"0.txt": "found\n"})
    told = await Desk(folder, backend, search_seconds=0.5)("search_content", pattern="found|hay.*stackx")
    assert told.startswith("0.txt\n1: found\n")
    assert told.endswith("[time is up, and this is not all: name a path or a glob to look in]")


# Git is the oracle of what is ignored

PATHS = [
    "a", "b", "a.txt", "b.txt", "ab", "a/b", "a/a.txt", "a/b/c", "a/b/a.txt", "b/a/a.txt", "b/c", "c/a b", "c/#x", "c/!x",
    "a]", "c/e.txt", "d/a.txt/b", "c/sp ", "x.y", "c/x-y", "d/[a]",
]  # fmt: skip
PIECES = [
    "a",
    "b",
    "c",
    "*",
    "**",
    "?",
    "/",
    "/",
    "[ab]",
    "[!a]",
    "[a-c]",
    ".txt",
    "\\",
    " ",
    "#",
    "!",
    "[",
    "]",
    "[[:alpha:]]",
    "-",
]


def git_ignored(folder: Path, paths: list[str]) -> set[str]:
    environment = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "HOME": str(folder.parent), "LC_ALL": "C"}
    if not (folder / ".git").exists():
        subprocess.run(["git", "init", "-q", folder], env=environment, check=True)
    command = ["git", "-C", folder, "check-ignore", "--no-index", "-z", "--stdin"]
    done = subprocess.run(command, input="\0".join(paths).encode(), capture_output=True, env=environment, check=False)
    assert done.returncode in (0, 1), done.stderr
    return set(done.stdout.decode().split("\0")) - {""}


def ours_ignored(rules: Rules, paths: list[str]) -> set[str]:
    """A path is ignored if it, or a directory above it, is."""

    def ignored(path: str) -> bool:
        parts = path.split("/")
        for count in range(1, len(parts)):
            if rules.excludes("/".join(parts[:count]), is_directory=True):
                return True
        return bool(rules.excludes(path, is_directory=False))

    return {path for path in paths if ignored(path)}


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("ignore") / "repository"
    for path in sorted(PATHS, key=len, reverse=True):
        if not (folder / path).exists():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).touch()
    return folder


FILES = [path for path in PATHS if not any(other.startswith(f"{path}/") for other in PATHS)]


@needs_git
@pytest.mark.parametrize(
    "text",
    [
        "a\n", "/a\n", "a/\n", "a/b\n", "/a/b\n", "**/a.txt\n", "a/**\n", "a/**/a.txt\n", "*.txt\n!a.txt\n", "*\n!a\n",
        "*\n!*/\n!*.txt\n", "\\#x\n", "\\!x\n", "#x\n", "!x\n", "a b\n", "a \n", "sp\\ \n", "a\r\n", "\ufeffa\n", "[ab]\n",
        "[!a]\n", "[a-b].txt\n", "[\n", "a]\n", "\\\n", "a\\\n", "**\n", "/**\n", "**/b/c\n", "a**\n", "?\n", "*.?\n", "x-y\n",
        "[[:alpha:]]\n", "[x[:digit:]-]\n", "\\a\n", "[\\]a]\n", "b/*/a.txt\n", "  \n", "/\n", "//\n", "a//b\n", "\\[a\\]\n",
        "[a]]\n", "[b-a]\n", "c/*y\n", "!a\na\n!a\n", "a.txt/\n", "[]]\n", "[!]]\n",
    ],
)  # fmt: skip
def test_ignore_rules_mean_what_git_means_by_them(repository: Path, text):
    (repository / ".gitignore").write_bytes(text.encode())
    assert ours_ignored(Rules(text.encode()), FILES) == git_ignored(repository, FILES)


@needs_git
@given(st.lists(st.lists(st.sampled_from(PIECES), min_size=1, max_size=6).map("".join), min_size=1, max_size=3))
def test_any_ignore_rules_mean_what_git_means_by_them(repository: Path, lines):
    text = "\n".join(lines).encode()
    (repository / ".gitignore").write_bytes(text)
    assert ours_ignored(Rules(text), FILES) == git_ignored(repository, FILES), lines


@needs_git
async def test_a_walk_leaves_out_what_git_ignores_in_nested_files_too(tree: Path, desk: Desk):
    (tree / "out").unlink()
    shutil.rmtree(tree / ".git")
    (tree / "sub" / ".git").unlink()
    everything = [path.relative_to(tree).as_posix() for path in tree.rglob("*") if not path.is_dir()]
    ignored = git_ignored(tree, everything)
    found = (await desk("find_files", pattern="*")).splitlines()
    assert {line for line in found if not line.endswith("/")} == set(everything) - ignored


# Ripgrep is an aid that changes nothing


@needs_ripgrep
@pytest.mark.parametrize("path", [".", "src", "build", "sub"])
@pytest.mark.parametrize(
    "pattern", ["needle", "n[e]+dle.*", "def \\w+\\(", "é needle", "dle in w", "Need", "needle: true"]
)
async def test_the_results_are_the_same_with_and_without_ripgrep(tree: Path, backend, pattern, path):
    plant(
        tree,
        {
            ".ignore": "keep.log\n!debug.log\n",
            ".rgignore": "/src/top.txt\n",
            "src/deep/.ignore": "*.rs\n",
            "src/deep/a.rs": "needle\n",
            ".git/info/exclude": "sub\n",
            "src/nul-late.txt": b"needle\n" * 3000 + b"\0needle\n",
            "src/nested/.gitignore": "*\n!*.py\n",
            "src/nested/a.py": "needle\n",
            "src/nested/b.txt": "needle\n",
            "src/large.txt": "needle\n" * 2_000_000,
            "build/.gitignore": "",
        },
    )
    answers = [
        await Desk(tree, backend, ripgrep=ripgrep)("search_content", pattern=pattern, path=path)
        for ripgrep in (True, False)
    ]
    assert answers[0].replace("[not searched, because larger than 8 MiB: 1]", "").rstrip() == (
        answers[1].replace("[not searched, because larger than 8 MiB: 1]", "").rstrip()
    )


@needs_ripgrep
async def test_a_ripgrep_that_fails_is_done_without(tree: Path, backend, monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "rg").write_text("#!/bin/sh\nexit 2\n")
    (tmp_path / "bin" / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    assert "src/top.txt\n1: needle" in await Desk(tree, backend)("search_content", pattern="needle")


async def test_a_ripgrep_that_lies_shows_nothing_that_is_not_there_to_see(
    tree: Path, outside, backend, monkeypatch, tmp_path
):
    (tmp_path / "bin").mkdir()
    script = (
        "#!/bin/sh\nprintf './src/top.txt\\0./../outside/secret.txt\\0./out/secret.txt\\0./debug.log\\0./none\\0'\n"
    )
    (tmp_path / "bin" / "rg").write_text(script)
    (tmp_path / "bin" / "rg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    told = await Desk(tree, backend)("search_content", pattern="(needle|key)+e*", literal=False)
    told += await Desk(tree, backend)("search_content", pattern="e")
    assert "house" not in told and "debug.log" not in told
    assert "src/top.txt\n1: needle" in told


# What every match must contain

ATOMS = st.sampled_from(
    ["ab", "c", ".", "\\w", "\\d+", "x*", "y?", "z{2}", "q{0,3}", "(de)", "(fg)?", "[a-c]", "[^]x]", "\\.", "\\-", "a+", "^", "$",
     "{n}", "\\bk", "[]]", "(?:hi)", "m|n", "\\x41", "(\\))", " ", "é", "-"]
)  # fmt: skip


@given(st.lists(ATOMS, min_size=1, max_size=6).map("".join), st.data())
def test_every_match_contains_the_required_text(pattern, data):
    needle = required(pattern)
    if needle is None:
        return
    try:
        match = re.compile(pattern).search(data.draw(st.from_regex(pattern)))
    except re.error:
        return
    assert match is None or needle in match[0]


@pytest.mark.parametrize(
    ("pattern", "needle"),
    [
        ("plain text", "plain text"),
        ("def \\w+\\(self", "(self"),
        ("colou?r", "colo"),
        ("a{2}bcd", "bcd"),
        ("a{x}", "a{x}"),
        ("(abc)*de", "de"),
        ("[abc]xy[^]]z", "xy"),
        ("a|b", None),
        ("(?i)abc", None),
        ("\\x41bc", None),
        ("\\d+", None),
    ],
)
def test_the_required_text_is_the_longest_that_is_sure(pattern, needle):
    assert required(pattern) == needle


def test_a_glob_of_many_alternatives_is_not_multiplied_out():
    assert compile_glob("{a,b}" * 30).match("abab") is None
