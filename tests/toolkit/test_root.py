"""`Root`: every operation, by both ways of staying inside, on a real directory."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.desk import snapshot
from support.traps import WAYS_OUT, lay_traps
from treadle import ConfigError, UnsupportedError
from treadle.toolkit import PROTECTED_NAMES, RefusedError, Root

AS_ROOT = os.geteuid() == 0


def leftovers(folder: Path) -> list[str]:
    return [str(path) for path in folder.rglob("*.tmp")]


# Backends


def test_the_backend_can_be_seen_and_chosen(folder: Path, backend):
    assert Root(folder, backend=backend).backend == backend
    assert Root(folder).backend in ("openat2", "walk")


def test_a_root_that_is_no_directory_is_refused(folder: Path):
    for path in (folder / "nothing", folder / "README.md"):
        with pytest.raises(ConfigError, match="cannot be the root"):
            Root(path)


@pytest.mark.parametrize("missing", ["del os.O_NOFOLLOW", "os.supports_dir_fd = set()"])
def test_a_system_without_the_means_is_told_so(missing):
    code = f"""
        import os, treadle.toolkit
        {missing}
        try:
            treadle.toolkit.Root()
        except treadle.UnsupportedError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the file tools need a system that opens files relative to a directory")


def test_a_kernel_without_openat2_is_walked(folder: Path):
    code = f"""
        import os, types
        from treadle import UnsupportedError
        from treadle.toolkit import Root
        os.uname = lambda: types.SimpleNamespace(machine="unheard-of")
        print(Root({str(folder)!r}).backend)
        try:
            Root({str(folder)!r}, backend="openat2")
        except UnsupportedError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["walk", "this kernel has no openat2: leave backend out, or name 'walk'"]
    assert issubclass(UnsupportedError, ConfigError)


def test_a_closed_root_does_nothing_with_a_descriptor_that_may_be_another_file_by_now(root: Root):
    with root:
        root.stat("README.md")
    with pytest.raises(ValueError, match="closed"):
        root.stat("README.md")
    root.close()


def test_the_root_is_the_directory_and_not_its_name(root: Root, folder: Path):
    folder.rename(folder.with_name("moved"))
    folder.mkdir()
    (folder / "README.md").write_text("another")
    assert root.read("README.md") == b"# Title\n\nText.\n"


# Reading


def test_files_are_read_in_whole_and_in_part(root: Root):
    assert root.read("README.md") == b"# Title\n\nText.\n"
    assert root.read("src/../README.md", 3) == b"# T"
    with root.open("src/main.py") as file:
        assert file.readline() == b"print('hi')\n"


def test_a_path_below_the_root_may_be_absolute(root: Root, folder: Path, tmp_path: Path, backend):
    assert root.read(f"{folder}/README.md") == root.read("README.md")
    (tmp_path / "alias").symlink_to(folder)
    with Root(tmp_path / "alias", backend=backend) as alias:
        assert alias.read(f"{tmp_path}/alias/README.md") == alias.read(f"{folder}/README.md")


def test_a_listing_tells_kinds_sizes_and_where_links_lead(root: Root, folder: Path):
    (folder / "link").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    listing = root.scandir()
    assert [(entry.name, entry.kind) for entry in listing.entries] == [
        ("README.md", "file"),
        ("link", "link"),
        ("pipe", "pipe"),
        ("src", "directory"),
    ]
    assert listing.total == 4
    assert listing.entries[0].size == 15 and listing.entries[1].target == "/etc"
    assert root.scandir(".", limit=2).entries == listing.entries[:2]
    assert root.scandir("src", limit=0).total == 1


def test_the_status_is_of_the_file_or_of_the_link(root: Root, folder: Path):
    (folder / "link").symlink_to("README.md")
    (folder / "out").symlink_to("../outside/secret.txt")
    assert stat.S_ISREG(root.stat("link").st_mode)
    assert stat.S_ISLNK(root.stat("link", follow=False).st_mode)
    assert stat.S_ISLNK(root.stat("out", follow=False).st_mode)
    with pytest.raises(RefusedError, match="leads out"):
        root.stat("out")


def test_a_fifo_with_a_waiting_writer_is_refused_and_the_writer_goes_on_waiting(root: Root, folder: Path):
    os.mkfifo(folder / "pipe")
    writer = subprocess.Popen(["sh", "-c", f"echo x > '{folder}/pipe'"])
    try:
        with pytest.raises(RefusedError, match="is a pipe, not a regular file"):
            root.open("pipe")
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()


# Writing


def test_a_new_file_gets_the_mode_that_the_umask_leaves(root: Root, folder: Path):
    before = os.umask(0o027)
    try:
        assert root.write("new.txt", b"new") is True
    finally:
        os.umask(before)
    assert (folder / "new.txt").read_bytes() == b"new"
    assert stat.S_IMODE((folder / "new.txt").stat().st_mode) == 0o640
    assert not leftovers(folder)


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o664])
def test_an_old_file_keeps_its_mode(root: Root, folder: Path, mode):
    (folder / "README.md").chmod(mode)
    assert root.write("README.md", b"new") is False
    assert stat.S_IMODE((folder / "README.md").stat().st_mode) == mode


def test_what_is_written_anew_runs_no_longer_as_somebody_else(root: Root, folder: Path):
    (folder / "src" / "main.py").chmod(0o6755)
    root.write("src/main.py", b"new")
    assert stat.S_IMODE((folder / "src" / "main.py").stat().st_mode) == 0o755


@pytest.mark.skipif(not AS_ROOT, reason="only root gives files away")
def test_an_old_file_keeps_its_owner(root: Root, folder: Path):
    os.chown(folder / "README.md", 1234, 4321)
    root.write("README.md", b"new")
    status = (folder / "README.md").stat()
    assert (status.st_uid, status.st_gid) == (1234, 4321)


@pytest.mark.skipif(not AS_ROOT, reason="only root becomes somebody else")
def test_a_file_whose_owner_cannot_be_kept_is_left_alone(folder: Path, backend):
    folder.chmod(0o777)
    (folder / "README.md").chmod(0o666)
    before = snapshot(folder)
    code = f"""
        import os
        from treadle.toolkit import RefusedError, Root
        root = Root({str(folder)!r}, backend={backend!r})
        os.setgid(65534), os.setuid(65534)
        try:
            root.write("README.md", b"taken over")
        except RefusedError as error:
            print(error.strerror)
    """
    # The folders of a test may be closed to others; the root is open already when the rights go.
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert "belongs to another user" in done.stdout
    assert snapshot(folder) == before


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="no extended attributes here")
def test_an_old_file_keeps_its_own_attributes(root: Root, folder: Path):
    try:
        os.setxattr(folder / "README.md", "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    root.write("README.md", b"new")
    assert os.getxattr(folder / "README.md", "user.note") == b"kept"


def test_a_read_only_file_is_refused_even_to_the_superuser(root: Root, folder: Path):
    (folder / "README.md").chmod(0o444)
    before = snapshot(folder)
    with pytest.raises(RefusedError, match="is read-only"):
        root.write("README.md", b"new")
    assert snapshot(folder) == before


def test_another_name_of_the_same_file_keeps_the_old_content(root: Root, folder: Path, outside: Path):
    os.link(outside / "secret.txt", folder / "inside.txt")
    before = snapshot(outside)
    root.write("inside.txt", b"new")
    assert (folder / "inside.txt").read_bytes() == b"new"
    assert {path: what[:-1] for path, what in snapshot(outside).items()} == {
        path: what[:-1] for path, what in before.items()
    }


def test_a_link_stays_and_its_target_is_written(root: Root, folder: Path):
    (folder / "link").symlink_to("src/second")
    (folder / "src" / "second").symlink_to("main.py")
    root.write("link", b"new")
    assert (folder / "link").is_symlink() and (folder / "src" / "second").is_symlink()
    assert (folder / "src" / "main.py").read_bytes() == b"new"


@pytest.mark.parametrize("target", ["nothing", "../outside/new.txt", "src/nothing"])
def test_nothing_is_made_through_a_link_that_dangles(root: Root, folder: Path, outside: Path, target):
    (folder / "link").symlink_to(target)
    before = snapshot(folder), snapshot(outside)
    with pytest.raises(RefusedError, match=r"does not exist|leads out"):
        root.write("link", b"new")
    assert (snapshot(folder), snapshot(outside)) == before


def test_a_file_that_changed_since_it_was_read_is_not_written(root: Root, folder: Path):
    read = root.stat("README.md")
    (folder / "README.md").write_text("somebody else's")
    with pytest.raises(RefusedError, match="changed by somebody else"):
        root.write("README.md", b"new", expected=read)
    assert (folder / "README.md").read_text() == "somebody else's"
    (folder / "README.md").unlink()
    with pytest.raises(FileNotFoundError):
        root.write("README.md", b"new", expected=read)
    assert not leftovers(folder)


WRITER = """
    import resource, signal, sys
    from treadle.toolkit import Root
    root = Root(sys.argv[1], backend=sys.argv[2])
    {before}
    try:
        root.write("README.md", b"x" * (64 << 20))
    except OSError as error:
        print(error.errno)
"""


def writer(folder: Path, backend: str, before: str) -> subprocess.Popen[str]:
    code = textwrap.dedent(WRITER).format(before=before)
    return subprocess.Popen([sys.executable, "-c", code, folder, backend], stdout=subprocess.PIPE, text=True)


def test_a_write_that_finds_no_room_leaves_the_old_file_and_nothing_else(folder: Path, backend):
    before = snapshot(folder)
    with writer(folder, backend, "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))") as process:
        assert process.communicate(timeout=60)[0] == f"{errno.EFBIG}\n"
    assert snapshot(folder) == before


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system names files when it makes them")
def test_a_writer_killed_half_way_leaves_the_old_file_and_nothing_else(folder: Path, backend):
    before = snapshot(folder)
    # Its own limit kills it in the middle: the signal that Python otherwise ignores.
    limit = (
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); resource.setrlimit(resource.RLIMIT_FSIZE, (9 << 20, 9 << 20))"
    )
    with writer(folder, backend, limit) as process:
        process.communicate(timeout=60)
    assert process.returncode < 0
    assert snapshot(folder) == before


@pytest.mark.parametrize("name", ["pipe", "src", "."])
def test_what_is_no_file_is_not_written(root: Root, folder: Path, name):
    os.mkfifo(folder / "pipe")
    before = snapshot(folder)
    with pytest.raises(OSError, match=r"pipe|directory"):
        root.write(name, b"new")
    assert snapshot(folder) == before


def test_directories_are_made_one_by_one_or_all_at_once(root: Root, folder: Path):
    root.mkdir("one")
    root.mkdir("two/three/four", parents=True)
    root.mkdir("two/three", parents=True)
    assert (folder / "one").is_dir() and (folder / "two" / "three" / "four").is_dir()
    with pytest.raises(FileExistsError):
        root.mkdir("one")
    with pytest.raises(FileNotFoundError):
        root.mkdir("five/six")


def test_a_file_is_renamed_and_removed(root: Root, folder: Path):
    root.rename("README.md", "src/main.py")
    assert (folder / "src" / "main.py").read_text().startswith("# Title")
    root.unlink("src/main.py")
    assert not list((folder / "src").iterdir())


def test_links_are_renamed_and_removed_themselves(root: Root, folder: Path, outside: Path):
    (folder / "out").symlink_to("../outside/secret.txt")
    before = snapshot(outside)
    root.rename("out", "moved")
    assert (folder / "moved").is_symlink()
    root.unlink("moved")
    assert snapshot(outside) == before


# What is protected


@pytest.mark.parametrize("options", [{"protected": ".env"}, {"backend": "chroot"}])
def test_options_that_would_not_protect_as_they_seem_to_are_refused(folder: Path, options):
    with pytest.raises(ConfigError, match="list of names"):
        Root(folder, **options)


@pytest.mark.parametrize(
    "path",
    [".git/config", ".git/hooks/new", ".GIT/config", ".git", ".Git", ".g\u200cit/config", ".git./config", ".git /config",
     "sub/.git/config", ".treadle/settings.toml", ".mcp.json", ".MCP.json", "src/../.git/config", "inner/x", "chain/x",
     "bare/config", "bare/hooks/pre-commit", "\uff0egit/config"],
)  # fmt: skip
def test_protected_names_are_not_written_by_any_name(root: Root, folder: Path, path):
    for parts in (".git/hooks", "bare/objects", "bare/refs", "bare/hooks", "sub/.git"):
        (folder / parts).mkdir(parents=True)
    for name in (".git/config", "bare/HEAD", ".mcp.json"):
        (folder / name).write_text("kept")
    (folder / "inner").symlink_to(".git/hooks")
    (folder / "chain").symlink_to("inner")
    before = snapshot(folder)
    with contextlib.suppress(OSError):  # where a file stands in the way, that is said first
        root.mkdir(f"{path}/new", parents=True)
    for attempt in (
        lambda: root.write(path, b"new"),
        lambda: root.mkdir(path),
        lambda: root.rename("README.md", path),
        lambda: root.unlink(path),
    ):
        with pytest.raises(RefusedError, match="is protected"):
            attempt()
    assert snapshot(folder) == before


@pytest.mark.parametrize(
    ("there", "coming"),
    [(("objects", "refs"), "HEAD"), (("HEAD", "refs"), "objects"), (("HEAD", "objects"), "REFS"), (("HEAD",), "commondir"), (("commondir",), "head")],
)  # fmt: skip
def test_no_directory_is_made_a_repository(root: Root, folder: Path, there, coming):
    # Its `config` could have been written before, and names programs that git runs in it.
    (folder / "sub").mkdir()
    for name in there:
        (folder / "sub" / name).mkdir()
    for attempt in (
        lambda: root.write(f"sub/{coming}", b"new"),
        lambda: root.mkdir(f"sub/{coming}/heads", parents=True),
        lambda: root.rename("README.md", f"sub/{coming}"),
    ):
        with pytest.raises(RefusedError, match="is protected"):
            attempt()
    assert sorted(path.name for path in (folder / "sub").iterdir()) == sorted(there)
    root.write("sub/other", b"new")


def test_what_a_protected_name_leads_to_is_protected_as_well(root: Root, folder: Path):
    (folder / "conf" / "agent").mkdir(parents=True)
    (folder / "conf" / "mcp.json").write_text("kept")
    (folder / ".mcp.json").symlink_to("conf/mcp.json")
    (folder / ".treadle").symlink_to("conf/agent")
    before = snapshot(folder)
    for path in ("conf/mcp.json", "conf/agent/config.toml", "src/../conf/agent/deep"):
        with pytest.raises(RefusedError, match="is protected"):
            root.write(path, b"new")
    with pytest.raises(RefusedError, match="is protected"):
        root.rename("conf/agent", "conf/other")
    assert snapshot(folder) == before
    root.write("conf/other.json", b"new")


def test_nobody_writes_to_the_environment_that_runs_the_agent(backend):
    above, name = os.path.split(sys.prefix)
    with Root(above, backend=backend) as root:
        for path in (f"{name}/x.pth", f"{name}/lib/../x.pth"):
            with pytest.raises(RefusedError, match="is protected"):
                root.write(path, b"import os")
        with pytest.raises(RefusedError, match="is protected"):
            root.rename(name, f"{name}-old")
    assert not Path(sys.prefix, "x.pth").exists()


def test_what_is_protected_may_be_read(root: Root, folder: Path):
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("[core]")
    assert root.read(".git/config") == b"[core]"
    with pytest.raises(RefusedError):
        root.rename(".git/config", "config")


def test_the_host_names_what_is_protected(folder: Path, backend):
    root = Root(folder, backend=backend, protected=(*PROTECTED_NAMES, ".env"))
    with root, pytest.raises(RefusedError, match="protected"):
        root.write(".ENV", b"new")
    with Root(folder, backend=backend, protected=()) as root:
        root.mkdir(".git")
        assert root.write(".git/config", b"new")


# Ways out


@pytest.mark.parametrize("way", WAYS_OUT, ids=lambda way: ascii(way[:40]))
def test_no_way_leads_out(root: Root, folder: Path, outside: Path, way):
    lay_traps(folder)
    way = way.format(folder=folder) if way.startswith("{") else way
    before = snapshot(folder.parent)
    for attempt in (
        lambda: root.read(way),
        lambda: root.write(way, b"broken out"),
        lambda: root.mkdir(f"{way}/new"),
        lambda: root.mkdir(f"{way}/new", parents=True),
        lambda: root.rename("README.md", f"{way}/new"),
        lambda: root.rename(f"{way}/x", "new"),
        lambda: root.scandir(way),
        lambda: root.unlink(f"{way}/x"),
        lambda: root.stat(f"{way}/x"),
    ):
        with pytest.raises((OSError, UnicodeError)):
            attempt()
    assert snapshot(folder.parent) == before


def test_links_inside_are_followed_as_the_system_follows_them(root: Root, folder: Path):
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "file").write_text("deep")
    (folder / "jump").symlink_to("deep/er")
    (folder / "dots").symlink_to("./deep/.././deep/er/")
    assert root.read("jump/../file") == root.read("dots/../file") == b"deep"
    with pytest.raises(FileNotFoundError):
        root.read("jump/../README.md")


def test_both_ways_say_the_same(folder: Path, outside: Path):
    if Root(folder).backend != "openat2":
        pytest.skip("this kernel has no openat2")
    lay_traps(folder)

    def outcome(root: Root, path: str) -> tuple[type, int | None] | bytes:
        try:
            return root.read(path)
        except (OSError, UnicodeError) as error:
            return type(error), getattr(error, "errno", None)

    paths = [way.format(folder=folder) if way.startswith("{") else way for way in WAYS_OUT]
    paths += ["README.md", "in/main.py", "in/../README.md", "./src//main.py", "nothing", "src", "", ".", "src/."]
    with Root(folder, backend="openat2") as one, Root(folder, backend="walk") as other:
        assert [outcome(one, path) for path in paths] == [outcome(other, path) for path in paths]


@pytest.mark.parametrize("limit", ["", "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))"])
def test_where_every_file_is_made_with_a_name_a_write_leaves_nothing_else_either(folder: Path, backend, limit):
    before = set(snapshot(folder))
    with writer(folder, backend, f"import os; del os.O_TMPFILE; {limit}") as process:
        assert process.communicate(timeout=60)[0] == (f"{errno.EFBIG}\n" if limit else "")
    assert set(snapshot(folder)) == before
    assert (folder / "README.md").stat().st_size == (15 if limit else 64 << 20)
