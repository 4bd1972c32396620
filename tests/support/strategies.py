"""Hypothesis strategies for values, transcripts and event logs."""

from __future__ import annotations

from hypothesis import strategies as st

from treadle.messages import (
    AssistantMessage,
    Citation,
    FilePart,
    Message,
    ModelRef,
    ProviderPart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
)
from treadle.usage import StopReason, Usage

texts = st.text(st.characters(), max_size=20)  # with lone surrogates
plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
optional = st.none() | plain
ids = st.sampled_from(["call_1", "call_2", "call_3", "x"])
names = st.sampled_from(["add", "read_file", "unnamed"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | plain,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(plain, inner, max_size=3),
    max_leaves=8,
)

text_parts = st.builds(
    TextPart, plain, st.lists(st.builds(Citation, optional, optional, optional), max_size=2).map(tuple)
)
file_parts = st.builds(FilePart, plain, data=st.just("aGk=")) | st.builds(FilePart, plain, url=plain)
call_parts = st.builds(ToolCallPart, ids, names, plain, optional, st.booleans(), st.booleans(), json_values)
result_parts = st.builds(ToolResultPart, ids, names, plain, st.booleans(), st.lists(file_parts, max_size=1).map(tuple))
assistant_parts = (
    text_parts
    | st.builds(ReasoningPart, plain, optional)
    | call_parts
    | st.builds(ProviderPart, plain, plain, json_values)
)
user_messages = st.builds(UserMessage, st.lists(text_parts | file_parts, min_size=1, max_size=2).map(tuple))
assistant_messages = st.builds(
    AssistantMessage,
    st.lists(assistant_parts, max_size=4).map(tuple),
    st.sampled_from(list(StopReason)),
    st.none() | st.builds(ModelRef, plain, plain),
)
tool_messages = st.builds(ToolMessage, st.lists(result_parts, max_size=3).map(tuple))
messages: st.SearchStrategy[Message] = user_messages | assistant_messages | tool_messages
transcripts: st.SearchStrategy[list[Message]] = st.lists(messages, max_size=8)
usages = st.none() | st.builds(Usage, st.integers(0, 9), st.integers(0, 9), cost_usd=st.none() | st.just(0.25))
