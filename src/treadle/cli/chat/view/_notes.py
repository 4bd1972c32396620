"""What a run says besides its answer and its calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.cli.chat.view._cells import clip, wrap
from treadle.cli.chat.view._describe import counted, duration
from treadle.cli.terminal import LONGEST, neutral, one_line
from treadle.messages import TextPart
from treadle.usage import StopReason

if TYPE_CHECKING:
    from treadle.cli.chat.view._cells import Line
    from treadle.events import Compaction, ModelRetry, RunFinish
    from treadle.messages import AssistantMessage

_SOURCES = 10
_SHORT = {
    StopReason.MAX_TOKENS: "the answer was cut off at the limit of output tokens",
    StopReason.CONTEXT: "the conversation does not fit into the model's context any more",
    StopReason.REFUSAL: "the model refused to go on",
    StopReason.PAUSED: "the run waits for a decision",
    StopReason.MAX_STEPS: "the run reached its limit of steps",
    StopReason.BUDGET: "the run reached a limit",
    StopReason.CANCELLED: "cancelled; what was shown is kept",
}


def retried(event: ModelRetry, width: int, *, void: bool = False) -> list[Line]:
    """A request that failed and is sent again. `void`: some of its answer was shown."""
    told = f"attempt {event.attempt} failed, next in {duration(event.delay_seconds)}: {one_line(event.error)}"
    lines = [clip([("warning", told)], width)]
    return [*lines, clip([("warning", "what it had answered so far does not count")], width)] if void else lines


def summarised(event: Compaction, width: int) -> list[Line]:
    """The cut in a conversation whose beginning the model knows by a summary only, and what it knows."""
    cut = clip([("dim", f"── older messages summarised: {counted(event.messages, 'message')} ──")], width)
    return [cut, *wrap([("dim", neutral(event.summary.strip()))], width)]


def stopped(event: RunFinish, seconds: float, width: int) -> list[Line]:
    """Why a run stopped short, or what broke it; nothing of one that is complete."""
    if event.stop.complete:
        return []
    if event.stop is not StopReason.CANCELLED and (event.stop is StopReason.ERROR or event.error):
        return wrap([("error", f"error: {one_line(event.error or event.stop.value, LONGEST)}")], width)
    limit = f" (limit: {one_line(event.limit)})" if event.limit else ""
    what = _SHORT.get(event.stop, f"stopped: {event.stop.value}")
    return wrap([("warning", f"{what}{limit} · {duration(seconds)}")], width)


def sources(message: AssistantMessage, width: int) -> list[Line]:
    """The pages and files that an answer rests on, each once."""
    found: dict[str, None] = {}
    for one in (one for part in message.content if isinstance(part, TextPart) for one in part.citations):
        where = one.url or one.file or ""
        title = one.title if one.title != where else None
        found.setdefault(one_line(": ".join(filter(None, (title, where))), LONGEST))
    texts = [f"[{number}] {text}" for number, text in enumerate(filter(None, found), 1)]
    if (more := len(texts) - _SOURCES) > 0:
        texts = [*texts[:_SOURCES], f"... and {more} more"]
    return [line for text in texts for line in wrap([("dim", text)], width)]
