"""What a model may say through its seam, and its answer made whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from treadle.errors import ModelContractError
from treadle.events import Compaction, ModelRetry, ReasoningDelta, ToolCallDelta, ToolFinish, ToolStart
from treadle.messages import clean
from treadle.model import model_ref
from treadle.usage import StopReason

if TYPE_CHECKING:
    from treadle.events import ModelFinish
    from treadle.messages import AssistantMessage
    from treadle.model import Model


def may_pass(event: Any) -> bool:
    """Whether a model may yield this beside text and its `ModelFinish`.

    Deltas must hold what their types say: values of another type would break the transcript later.
    """
    kind = type(event)
    if kind is ToolCallDelta:
        texts = (event.call_id, event.name, event.args)
        return type(event.index) is int and all(isinstance(text, str) for text in texts)
    if kind is ReasoningDelta:
        return isinstance(event.text, str)
    if kind is Compaction:
        return isinstance(event.summary, str) and type(event.messages) is int
    return kind is ModelRetry or (kind is ToolStart and event.hosted) or (kind is ToolFinish and event.result.hosted)


def complete(finish: ModelFinish | None, model: Model) -> ModelFinish:
    """An answer with its model named, and the last call of an answer that hit the output limit marked as cut off."""
    if finish is None:
        raise ModelContractError("the model ended without a model_finish")
    message = finish.message
    if any(not (call.id and call.name) for call in message.calls):
        raise ModelContractError("the model called a tool without an id or without a name")
    if finish.stop is StopReason.MAX_TOKENS and message.calls:
        message = _cut_last_call(message)
    named = finish.model or message.model or model_ref(model)
    if message.model is None or message.stop is not finish.stop:
        message = msgspec.structs.replace(message, model=message.model or named, stop=finish.stop)
    return clean(msgspec.structs.replace(finish, message=message, model=named))


def _cut_last_call(message: AssistantMessage) -> AssistantMessage:
    last = message.calls[-1]
    if not last.finished:
        return message
    content = tuple(msgspec.structs.replace(part, finished=False) if part is last else part for part in message.content)
    return msgspec.structs.replace(message, content=content)
