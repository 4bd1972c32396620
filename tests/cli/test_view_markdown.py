"""Markdown that streams in: what is finished is final, whatever pieces it comes in, and fits the terminal."""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from pathlib import Path

import pyte
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len
from wcwidth import wcswidth, wcwidth

from treadle.cli.chat.view._answer import Stream
from treadle.cli.chat.view._blocks import Blocks
from treadle.cli.chat.view._cells import cells, clip, wrap
from treadle.cli.chat.view._theme import Paint
from treadle.testing import assert_matches_golden

GOLDEN = Path(__file__).parents[1] / "golden" / "view"
SGR = re.compile(r"\x1b\[[0-9;]*m")
SAMPLE = (GOLDEN / "sample.md").read_text(encoding="utf-8")
FRAGMENTS = [
    *(
        "# ",
        "- ",
        "* ",
        "1. ",
        "3) ",
        "> ",
        "```",
        "~~~",
        "```python",
        "---",
        "===",
        "|",
        "|-|-|",
        "a | b",
        "\n",
        "\n\n",
    ),
    *(
        "    ",
        "  ",
        "\t",
        "**",
        "_",
        "`",
        "[x](",
        "http://a.b",
        ")",
        "![",
        "]",
        "<b>",
        "&#x202e;",
        "&lt;",
        "\\",
        "word",
    ),
    *(
        "long words here",
        "日本語、",
        "👨‍👩‍👧‍👦",
        "🇩🇪",
        "❤️",
        "e\u0301",
        "\x1b[2J",
        "\x1b]8;;x\x07",
        "\u202e",
        "\r",
        "\x9b",
        "#",
        "'''",
        '"""',
    ),
]
WORDS = [part for part in FRAGMENTS if part.isprintable() and not part.startswith("&") and part.isascii()] + [
    "\n",
    "\n\n",
    "kettle",
    "x y",
]
LINES = [
    *(
        "word",
        "other words",
        "# head",
        "## h ##",
        "####### no",
        "- a",
        "  - b",
        "* c",
        "1. one",
        "2. two",
        "   7. x",
        "- - n",
    ),
    *("> q", "> - ql", "- > lq", "  indented", "```", "```python", "~~~", "  ```", "- ```", "1. ```", "   ```"),
    *("| a | b |", "|---|---|", "| 1 | 2 |", "---", "***", "===", "", "", ""),
]
MARKDOWN_IT = MarkdownIt("commonmark", {"html": False}).enable("table").disable("reference")
texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=6), max_size=40).map("".join)
widths = st.sampled_from([1, 2, 3, 5, 8, 10, 13, 20, 40, 80, 200])


def whole(text: str, width: int, theme: str = "none") -> list[str]:
    return pieces([text], width, theme)


def pieces(texts: list[str], width: int, theme: str = "none") -> list[str]:
    stream = Stream(Blocks(marks=theme == "none"))
    lines = [line for text in texts for line in stream.feed(text, width)]
    return Paint(theme)([*lines, *stream.end(width)])


def cut(text: str, at: list[int]) -> list[str]:
    edges = [0, *sorted({place % (len(text) + 1) for place in at}), len(text)]
    return [text[begin:end] for begin, end in itertools.pairwise(edges)]


def widest(line: str) -> int:
    """The cells that a line takes in the terminal that draws it the widest."""
    bare = SGR.sub("", line)
    return max(cell_len(bare), wcswidth(bare), sum(map(wcwidth, bare)))


@pytest.mark.parametrize("width", [40, 80])
@pytest.mark.parametrize("theme", ["dark", "none"])
def test_a_document_looks_as_agreed(theme, width):
    shown = "\n".join(whole(SAMPLE, width, theme)).replace("\x1b", "␛")
    assert_matches_golden(GOLDEN / f"sample-{theme}-{width}.txt", shown + "\n")


@given(texts, st.lists(st.integers(0, 500), max_size=8), widths)
def test_the_pieces_a_text_comes_in_change_nothing(text, at, width):
    assert pieces(cut(text, at), width) == whole(text, width)


@given(texts, widths, st.sampled_from(["dark", "none"]))
def test_no_line_is_wider_than_the_terminal_and_nothing_in_it_steers_one(text, width, theme):
    for line in whole(text, width, theme):
        assert widest(line) <= width, line
        bare = SGR.sub("", line) if theme != "none" else line
        assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\u2028\u2029]", bare)


@given(texts, st.sampled_from([10, 20, 40, 80]))
def test_a_terminal_draws_each_line_in_a_row_of_its_own(text, width):
    lines = whole(text, width, "dark")
    # One column more: pyte wraps a full line before a combining character.
    screen = pyte.Screen(width + 1, len(lines) + 5)
    pyte.Stream(screen).feed("".join(f"{line}\r\n" for line in lines))
    assert screen.cursor.y == len(lines)
    assert all(screen.buffer[row][width].data[0] == " " for row in range(len(lines)))


@given(texts, widths)
def test_what_is_shown_of_an_unfinished_text_is_what_it_would_end_as(text, width):
    stream = Stream(Blocks(marks=True))
    finished = stream.feed(text, width)
    tail = stream.tail(width, 100_000)
    assert [*finished, *tail] == [*finished, *stream.end(width)]


@given(st.lists(st.sampled_from(WORDS), max_size=40).map("".join), st.sampled_from([30, 80]))
def test_no_letter_is_lost(text, width):
    shown = "".join(whole(text, width))
    missing = Counter(filter(str.isalpha, text)) - Counter(filter(str.isalpha, shown))
    assert not missing


class Recorded(Blocks):
    """Keeps which blocks it found, each with the containers around it: quotes as ">", items of lists as "i"."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def record(self, kind: str) -> None:
        self.found.append(("".join(">" if one.kind == ">" else "i" for one in self._containers), kind))

    def _flush(self, width: int) -> None:
        if self._leaf is not None:
            self.record(self._leaf.kind)
        super()._flush(width)

    def _emit_text(self, sign: str, text: str, width: int) -> None:
        self.record("heading")
        super()._emit_text(sign, text, width)


def blocks_of(text: str) -> list[tuple[str, str]]:
    recorded = Recorded()
    for line in text.split("\n"):
        recorded.line(line, 200)
    recorded.end(200)
    return recorded.found


def blocks_by_markdown_it(text: str) -> list[tuple[str, str]]:
    path, found = "", []
    kinds = {"table_open": "table", "paragraph_open": "paragraph", "heading_open": "heading", "fence": "fence"}
    for token in MARKDOWN_IT.parse(text):
        if token.type in ("blockquote_open", "list_item_open"):
            path += ">" if token.type == "blockquote_open" else "i"
        elif token.type in ("blockquote_close", "list_item_close"):
            path = path[:-1]
        elif token.type in kinds:
            found.append((path, kinds[token.type]))
    return found


@given(st.lists(st.sampled_from(LINES), max_size=10).map("\n".join))
def test_the_blocks_are_those_that_a_whole_parser_finds(text):
    assert blocks_of(text) == blocks_by_markdown_it(text)


@given(texts, st.integers(0, 12), widths)
def test_the_unfinished_end_is_no_higher_than_asked(text, height, width):
    stream = Stream(Blocks())
    stream.feed(text, width)
    assert len(stream.tail(width, height)) <= height


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_no_terminal_needs_more_cells_than_are_counted(text):
    line = wrap([("", text.replace("\n", " "))], 10_000)[0]
    shown = "".join(part for _, part in line)
    assert cells(shown) >= widest(shown)


@given(st.text(max_size=80), st.integers(1, 30))
def test_clipped_text_fits(text, width):
    assert sum(cells(part) for _, part in clip([("", text)], width)) <= width


@pytest.mark.parametrize("joined", ["👨‍👩‍👧‍👦", "🇩🇪", "❤️‍🔥", "👍🏽", "e\u0301\u0323", "1️⃣", "한"])
def test_no_grapheme_is_cut_where_it_fits(joined):
    for width in range(12, 16):
        lines = ["".join(text for _, text in line) for line in wrap([("", joined * 9)], width, words=False)]
        assert len(lines) > 1 or cells(joined) * 9 <= width
        assert all(line == joined * (len(line) // len(joined)) for line in lines)


def test_text_without_blanks_is_broken_between_its_characters_but_not_before_a_full_stop():
    lines = ["".join(text for _, text in line) for line in wrap([("", "english 日本語の文章です。続く")], 24)]
    assert lines == ["english 日本語の文章です", "。続く"] or all(not line.startswith("。") for line in lines)


def test_words_stay_whole_where_they_fit_and_nothing_is_lost():
    text = "the quick brown fox jumps over the extraordinarily lazy dog"
    for width in range(15, 60):
        lines = ["".join(part for _, part in line) for line in wrap([("", text)], width)]
        assert " ".join(lines) == text


def test_a_block_is_out_as_soon_as_it_cannot_change():
    stream = Stream(Blocks(marks=True))
    assert stream.feed("A paragraph", 40) == []
    assert stream.feed(" goes on\n", 40) == []
    assert text_of(stream.feed("\n", 40)) == ["A paragraph goes on"]
    assert text_of(stream.feed("- one\n", 40)) == []
    assert text_of(stream.feed("- two\n", 40)) == ["", "• one"]
    assert text_of(stream.feed("\n", 40)) == ["• two"]
    assert text_of(stream.feed("| a | b |\n|---|---|\n| 1 | 2 |\n", 40)) == []
    assert text_of(stream.feed("\n", 40)) == ["", "a │ b", "──┼──", "1 │ 2"]
    assert text_of(stream.feed("## Next\n", 40)) == ["", "## Next"]
    assert text_of(stream.feed("```\nx = 1\n", 40)) == ["```", "x = 1"]
    assert text_of(stream.feed("```\n", 40)) == ["```"]


def test_long_code_is_shown_while_it_is_written():
    stream = Stream(Blocks())
    stream.feed("```python\n", 80)
    out = 0
    for number in range(500):
        out += len(stream.feed(f"value_{number} = {number}\n", 80))
        assert number + 1 - out < 40
    assert out + len(stream.end(80)) - 1 == 500


def test_the_unfinished_end_is_made_once_for_each_change():
    stream = Stream(Blocks())
    stream.feed("Some *text*", 80)
    seen = stream.tail(80, 10)
    assert stream.tail(80, 10) is seen
    stream.feed("!", 80)
    assert text_of(stream.tail(80, 10)) == ["Some text!"]


def test_a_listing_without_an_empty_line_is_shown_while_it_is_written():
    stream = Stream(Blocks(marks=True))
    lines = [f"entry {number}" for number in range(1_000)]
    shown = text_of(stream.feed("\n".join(lines), 80))
    assert len(shown) >= 900
    assert [*shown, *text_of(stream.end(80))] == lines


def test_code_within_a_list_is_shown_while_it_is_written():
    stream = Stream(Blocks())
    assert text_of(stream.feed("1. Do this:\n\n   ```\n   ls\n", 80)) == ["1. Do this:", "", "   ```", "   ls"]


def test_a_comment_over_empty_lines_is_one_piece():
    lines = Paint("dark")(Stream(Blocks()).feed("```c\n/* one\n\ntwo */\n\nint x;\n```\n", 40))
    assert [line.startswith("\x1b[2;3m") for line in lines[1:4] if line] == [True, True]


def test_code_in_a_language_that_nobody_knows_is_plain():
    assert whole("```klingon\nqapla' = 1\n```", 40, "dark")[1] == "qapla' = 1"


def test_a_code_line_of_a_megabyte_is_folded_and_loses_nothing():
    lines = whole(f"```python\n{'x' * 1_000_000}\n```", 100)
    assert lines[0] == "```python" and lines[-1] == "```"
    assert "".join(lines[1:-1]) == "x" * 1_000_000


def test_where_a_link_leads_is_always_shown_and_never_as_a_link_of_the_terminal():
    shown = whole("[https://good.example](https://evil.example) ![pic](http://x/y.png) <http://same>", 200, "dark")[0]
    assert "\x1b]8" not in shown
    assert "https://good.example (https://evil.example)" in SGR.sub("", shown)
    assert "[image: pic] (http://x/y.png)" in SGR.sub("", shown)
    assert SGR.sub("", shown).count("http://same") == 1


def test_html_and_entities_are_text():
    assert whole("<script>x</script> &lt;b&gt; &#27;[2J &#x202e;y", 80) == ["<script>x</script> <b> �[2J \\u202ey"]


def test_without_a_theme_there_is_no_code_for_the_terminal_at_all():
    assert "\x1b" not in "".join(whole(SAMPLE, 80))


def test_a_list_is_counted_from_its_first_number_and_goes_on_after_code():
    assert whole("3. a\n3. b\n3. c\n", 40) == ["3. a", "4. b", "5. c"]
    assert whole("1. a\n```\nx\n```\n2. b", 40) == ["1. a", "```", "x", "```", "2. b"]


def test_a_table_with_too_many_columns_for_the_terminal_becomes_a_list():
    head = "|".join(f"column {number}" for number in range(9))
    text = f"{head}\n{'|'.join('-' * 9)}\n{'|'.join(f'value {number}' for number in range(9))}\n"
    lines = whole(text, 30)
    assert lines[0] == "**column 0**: value 0" or lines[0] == "column 0: value 0"
    assert len(lines) == 9


HOSTILE = ["[" * 9_999, "*a " * 3_300, "`" * 9_999, "![](" * 2_400, "<" * 9_999, "_" * 9_999, "> " * 5_000, "- " * 5_000,
           "|" * 9_999 + "\n" + "|-" * 4_999, "# " + " " * 20_000 + "x", "&" * 9_999, "a\u0301" * 9_000, "[a](" * 2_400, "~" * 9_999]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:4] for text in HOSTILE])
def test_made_up_text_takes_no_more_than_a_moment(text):
    begun = time.process_time()
    whole(f"{text}\n\n{text} x\n", 80)
    assert time.process_time() - begun < 10


@pytest.mark.parametrize(
    "text",
    ["|a|b|\n|-|-|\n" + "|1|2|\n" * 3000, "|a|\n|-|\n" + "b|" * 9000 + "\n|c|" * 900, "    x\n" * 3000, "> a\n" + "b\n" * 3000, "word " * 9000],
    ids=["rows", "columns", "indented", "lazy", "line"],
)  # fmt: skip
def test_no_block_is_so_long_that_all_of_it_comes_at_its_end(text):
    stream = Stream(Blocks())
    shown = stream.feed(text, 80)
    left = stream.end(80)
    assert shown and len(left) < 300


def test_a_table_that_goes_on_for_long_has_its_head_again_and_a_very_wide_one_stands_as_it_was_written():
    lines = whole("|a|b|\n|-|-|\n" + "|1|2|\n" * 150, 80)
    assert lines.count("1 │ 2") == 150 and lines.count("a │ b") == 2
    assert whole(f"|a|\n|-|\n|{'b|' * 3000}\n\nEnd.", 80)[:3] == ["|a|", "|-|", ("|" + "b|" * 3000)[:80]]


def test_a_line_that_never_ends_is_shown_while_it_is_written_and_loses_nothing_but_its_look():
    text = "# " + "x" * 25_000 + "\n\n# End\n"
    stream = Stream(Blocks())
    shown = text_of(stream.feed(text[:15_000], 80))
    assert len(shown) > 100 and stream.tail(80, 5)
    shown += text_of([*stream.feed(text[15_000:], 80), *stream.end(80)])
    assert "".join(shown[:-2]).lstrip("# ") == "x" * 25_000 and shown[-1] == "# End"


def text_of(lines) -> list[str]:
    return Paint("none")(lines)
