"""What is drawn at the lower edge: the live lines, what waits, the question, the status, the prompt, what it offers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from prompt_toolkit.application.current import get_app
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.layout.containers import ConditionalContainer, HSplit, VerticalAlign, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.layout import Layout
from prompt_toolkit.layout.processors import HighlightIncrementalSearchProcessor, HighlightSelectionProcessor
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth
from prompt_toolkit.widgets import SearchToolbar

from treadle.cli.chat.prompt import ShownPastes
from treadle.cli.terminal import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prompt_toolkit.buffer import Buffer
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.layout.containers import Container

    from treadle.cli.chat.pastes import Pastes

MAX_PROMPT_ROWS = 10
MAX_OFFERED = 8

STYLES = {
    "none": Style([("offered.current", "reverse")]),
    "dark": Style(
        [
            ("prompt", "ansibrightblue bold"),
            ("paste", "ansibrightcyan"),
            ("queue", "ansigray"),
            ("offered.current", "reverse"),
            ("offered.what", "ansigray"),
        ]
    ),
    "light": Style(
        [
            ("prompt", "ansiblue bold"),
            ("paste", "ansicyan"),
            ("queue", "ansibrightblack"),
            ("offered.current", "reverse"),
            ("offered.what", "ansibrightblack"),
        ]
    ),
}


@functools.lru_cache(maxsize=512)
def fragments(line: str) -> StyleAndTextTuples:
    """A line with SGR sequences as fragments. Most lines stay the same from one drawing to the next."""
    if "\x1b" not in line:
        return [("", line)]
    merged: StyleAndTextTuples = []
    for style, text, *_ in to_formatted_text(ANSI(line)):
        if merged and merged[-1][0] == style:
            merged[-1] = (style, merged[-1][1] + text)
        else:
            merged.append((style, text))
    return merged


def lines_window(lines: Callable[[], Sequence[str]]) -> Container:
    """A window that is as high as there are lines, and not there without any. They are asked for once per drawing."""
    drawn: list[int] = [-1]
    joined: StyleAndTextTuples = []

    def text() -> StyleAndTextTuples:
        if drawn[0] != get_app().render_counter:
            drawn[0] = get_app().render_counter
            joined.clear()
            for line in lines():
                joined.extend([*([("", "\n")] if joined else []), *(fragments(line) or [("", "")])])
        return joined

    window = Window(FormattedTextControl(text), dont_extend_height=True, wrap_lines=False)
    return ConditionalContainer(window, Condition(lambda: bool(text())))


def prompt_layout(
    buffer: Buffer,
    pastes: Pastes,
    *,
    above: Sequence[Callable[[], Sequence[str]]],
    sign: Callable[[], str],
) -> Layout:
    """The whole. `above` are the parts above the prompt, `sign` is what stands in front of it."""
    search = SearchToolbar(ignore_case=True, backward_search_prompt="search: ", forward_search_prompt="search: ")
    control = BufferControl(
        buffer=buffer,
        input_processors=[
            HighlightIncrementalSearchProcessor(),
            HighlightSelectionProcessor(),
            ShownPastes(pastes),
        ],
        include_default_input_processors=False,
        search_buffer_control=search.control,
        preview_search=True,
    )

    def prefix(line: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:prompt", f"{sign()} " if line == wrapped == 0 else "  ")]

    prompt = Window(
        control,
        height=Dimension(min=1, max=MAX_PROMPT_ROWS),
        get_line_prefix=prefix,
        wrap_lines=True,
        dont_extend_height=True,
    )
    offered = ConditionalContainer(
        Window(FormattedTextControl(lambda: _offered(buffer)), dont_extend_height=True, wrap_lines=False),
        Condition(lambda: bool(buffer.complete_state and buffer.complete_state.completions)),
    )
    parts: list[Container] = [*map(lines_window, above), prompt, offered, search.container]
    too_small = Window(FormattedTextControl(""))
    return Layout(HSplit(parts, align=VerticalAlign.TOP, window_too_small=too_small), focused_element=prompt)


def prompt_rows(text: str, columns: int) -> int:
    """How many rows a prompt with `text` takes."""
    width = max(1, columns - 2)
    return min(MAX_PROMPT_ROWS, sum(get_cwidth(line) // width + 1 for line in text.split("\n")))


def _offered(buffer: Buffer) -> StyleAndTextTuples:
    """The completions around the chosen one, a row each."""
    state = buffer.complete_state
    if state is None:
        return []
    size = get_app().output.get_size()
    most = max(1, min(MAX_OFFERED, size.rows - 4))
    chosen = state.complete_index
    first = max(0, min((chosen or 0) - most // 2, len(state.completions) - most))
    shown = state.completions[first : first + most]
    width = min(max((len(one.display_text) for one in shown), default=0), max(10, size.columns - 6))
    rows: StyleAndTextTuples = []
    for index, one in enumerate(shown, first):
        name = f"  {one.display_text[:width]:{width}} "
        what = one_line(one.display_meta_text)[: max(0, size.columns - width - 5)]
        rows += [("", "\n")] if rows else []
        rows += [
            ("class:offered.current" if index == chosen else "", name),
            ("class:offered.what", f" {what}" if what else ""),
        ]
    return rows
