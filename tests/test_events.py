"""Events: the versioned JSON of the log."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.strategies import assistant_messages, ids, names, optional, plain, result_parts, transcripts, usages
from treadle.events import (
    ApprovalRequest,
    Effect,
    Event,
    ModelFinish,
    ModelRetry,
    Parent,
    ReasoningDelta,
    RunFinish,
    RunStart,
    StepFinish,
    StepStart,
    SubagentEvent,
    TextDelta,
    ToolCallDelta,
    ToolFinish,
    ToolProgress,
    ToolStart,
    decode_event,
    encode_event,
    encode_events,
    stamp,
)
from treadle.messages import SCHEMA_VERSION, ModelRef
from treadle.usage import StopReason, Usage

stops = st.sampled_from(list(StopReason))
small = st.integers(0, 9)
numbers = st.floats(0, 1e6)
histories = transcripts.map(tuple)
models = st.builds(ModelRef, plain, plain)
flat = st.one_of(
    st.builds(RunStart, optional, models, histories, histories, st.none() | st.builds(Parent, plain, plain)),
    st.builds(StepStart, small, histories),
    st.builds(TextDelta, plain),
    st.builds(ReasoningDelta, plain),
    st.builds(ToolCallDelta, small, ids, names, plain),
    st.builds(ModelRetry, small, numbers, plain),
    st.builds(ModelFinish, assistant_messages, usages, stops, optional, st.none() | models),
    st.builds(ApprovalRequest, ids, names, plain, optional),
    st.builds(ToolStart, ids, small, names, plain, st.none() | st.sampled_from(list(Effect)), st.booleans()),
    st.builds(ToolProgress, ids, plain, st.none() | numbers, st.none() | numbers),
    st.builds(ToolFinish, ids, small, names, result_parts, st.booleans(), st.booleans(), st.booleans(), numbers),
    st.builds(StepFinish, small, usages, stops),
    st.builds(RunFinish, st.builds(Usage), small, stops, optional, optional),
)
events: st.SearchStrategy[Event] = flat | st.builds(SubagentEvent, ids, flat)


@given(events, plain, small)
def test_an_event_equals_itself_after_a_json_round_trip(event: Event, run_id: str, seq: int) -> None:
    stamped = stamp(event, run_id, seq)
    assert decode_event(encode_event(stamped)) == stamped
    assert (stamped.run_id, stamped.seq) == (run_id, seq)


def test_a_log_is_one_event_a_line() -> None:
    lines = encode_events((TextDelta("a\nb"), TextDelta("c"))).splitlines()
    assert [decode_event(line) for line in lines] == [TextDelta("a\nb"), TextDelta("c")]


@pytest.mark.parametrize("data", [b'{"type":"text_smell","text":"x"}', b'{"text":"x"}', b'{"type":"text_delta"}'])
def test_an_unknown_or_incomplete_event_is_an_error(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_event(data)


def test_the_log_says_which_version_of_the_format_it_has() -> None:
    start = RunStart("a", ModelRef("p", "n"), ())
    assert msgspec.json.decode(encode_event(start))["version"] == SCHEMA_VERSION
