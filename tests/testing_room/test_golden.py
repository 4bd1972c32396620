from __future__ import annotations

import pytest

from treadle.testing import assert_matches_golden
from treadle.testing.golden import UPDATE_VARIABLE


@pytest.fixture(autouse=True)
def compare_only(monkeypatch):
    monkeypatch.delenv(UPDATE_VARIABLE, raising=False)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "answer.txt"


def failure(path, data):
    with pytest.raises(AssertionError) as caught:
        assert_matches_golden(path, data)
    return str(caught.value)


@pytest.mark.parametrize("data", ["é\r\nb\n", "é\r\nb\n".encode(), bytearray("é\r\nb\n".encode())])
def test_equal_content_passes_as_text_and_as_bytes(file, data):
    file.write_bytes("é\r\nb\n".encode())
    assert_matches_golden(file, data)
    assert_matches_golden(str(file), data)


def test_a_difference_fails_with_a_diff_and_says_how_to_accept_it(file):
    file.write_text("one\ntwo\nthree\n")
    text = failure(file, "one\n2\nthree\n")
    assert text.splitlines() == [
        f"{file} differs; run pytest --update-golden if the new content is right",
        f"--- {file}",
        "+++ now",
        "@@ -1,3 +1,3 @@",
        " one",
        "-two",
        "+2",
        " three",
    ]
    assert file.read_text() == "one\ntwo\nthree\n"


@pytest.mark.parametrize("data", [3, {"a": 1}, [1, 2], None])
def test_what_is_neither_text_nor_bytes_is_refused(file, data):
    with pytest.raises(TypeError):
        assert_matches_golden(file, data, update=True)
    assert not file.exists()


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("a\n", "a\r\n", ["-a", "+a\\r"]),
        ("a\n", "a", ["-a", "+a\\ (no newline at the end)"]),
        ("a\n", "a\n\n", [" a", "+"]),
        ("", "a\n", ["+a"]),
        ("a\n", "", ["-a"]),
    ],
)
def test_differences_that_cannot_be_seen_are_shown(file, before, after, shown):
    file.write_bytes(before.encode())
    assert failure(file, after).splitlines()[4:] == shown


def test_a_difference_in_bytes_that_are_no_text_says_where_it_begins(file):
    file.write_bytes(b"\xff\x00\x01")
    assert "bytes differ from offset 1: '00 01' became '02'; 3 bytes became 2" in failure(file, b"\xff\x02")
    assert "bytes differ from offset 3: '' became '04'; 3 bytes became 4" in failure(file, b"\xff\x00\x01\x04")


def test_a_long_diff_is_cut(file):
    file.write_text("".join(f"{number}\n" for number in range(1000)))
    lines = failure(file, "").splitlines()
    assert len(lines) == 202
    assert lines[-1] == "... and 803 lines more"


def test_a_missing_file_fails_says_how_to_write_it_and_writes_nothing(file):
    assert failure(file, "new") == f"no golden file {file}: run pytest --update-golden to write it, then read it"
    assert not file.exists()


def test_updating_writes_the_bytes_and_the_folders_they_need(tmp_path):
    file = tmp_path / "deep" / "er" / "answer.bin"
    assert_matches_golden(file, b"\xff\r\n", update=True)
    assert file.read_bytes() == b"\xff\r\n"


def test_the_variable_updates_unless_the_call_says_otherwise(file, monkeypatch):
    monkeypatch.setenv(UPDATE_VARIABLE, "1")
    assert_matches_golden(file, "written")
    assert file.read_text() == "written"
    with pytest.raises(AssertionError, match="differs"):
        assert_matches_golden(file, "other", update=False)
