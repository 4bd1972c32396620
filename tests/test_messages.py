"""Messages: values whose JSON form is the identity."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given

from support.strategies import json_values, messages, texts
from treadle.messages import (
    AssistantMessage,
    FilePart,
    Message,
    ModelRef,
    ProviderPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    ToolResultPart,
    UserMessage,
    clean,
    decode_message,
    decode_messages,
    encodable,
    encode,
)
from treadle.usage import StopReason


@given(messages)
def test_a_message_equals_itself_after_a_json_round_trip(message: Message) -> None:
    assert decode_message(encode(message)) == message


def test_several_messages_travel_as_an_array() -> None:
    several = (UserMessage("a"), AssistantMessage((TextPart("b"),)))
    assert decode_messages(encode(several)) == several


@given(json_values)
def test_raw_blocks_keep_every_json_value(value: object) -> None:
    message = AssistantMessage((ProviderPart("p", "k", value), ToolCallPart("1", "f", "{}", raw=value)))
    assert decode_message(encode(message)) == message


@pytest.mark.parametrize(
    "data",
    [
        b'{"role":"system","content":[]}',
        b'{"role":"user","content":[{"type":"hologram"}]}',
        b'{"role":"assistant","content":[],"stop":"because"}',
        b'{"role":"user","content":[{"type":"file","media_type":"image/png"}]}',
    ],
)
def test_what_is_unknown_or_contradictory_is_an_error_and_never_dropped(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_message(data)


def test_a_file_has_exactly_one_of_data_and_url() -> None:
    for wrong in ({}, {"data": "aGk=", "url": "https://example.org/a.png"}):
        with pytest.raises(ValueError, match="exactly one"):
            FilePart("image/png", **wrong)


def test_bytes_given_to_a_file_become_base64() -> None:
    assert FilePart("image/png", data=b"\x00\xff").data == base64.b64encode(b"\x00\xff").decode()  # type: ignore[arg-type]


def test_lists_and_strings_become_tuples_of_parts() -> None:
    assert UserMessage("hi") == UserMessage([TextPart("hi")]) == UserMessage((TextPart("hi"),))
    assert UserMessage(TextPart("hi")) == UserMessage("hi")
    assert ToolMessage([ToolResultPart("1", "f", "x", files=[])]).results[0].files == ()  # type: ignore[arg-type]


def test_a_stop_may_be_given_as_a_plain_word_of_ours() -> None:
    assert AssistantMessage("x", "refusal").stop is StopReason.REFUSAL  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="because"):
        AssistantMessage("x", "because")  # type: ignore[arg-type]


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        TextPart("a").text = "b"  # type: ignore[misc]


def test_text_and_calls_of_an_answer_leave_out_what_is_hosted_or_thought() -> None:
    hosted = ToolCallPart("2", "web", "{}", hosted=True)
    call = ToolCallPart("1", "f", "{}")
    answer = AssistantMessage((TextPart("a"), hosted, call, TextPart("b")))
    assert answer.text == "ab"
    assert answer.calls == (call,)


def test_a_model_is_named_provider_and_name() -> None:
    assert str(ModelRef("ollama", "qwen3:8b")) == "ollama:qwen3:8b"


@given(texts)
def test_text_made_encodable_is_valid_utf8_and_otherwise_the_same(text: str) -> None:
    made = encodable(text)
    made.encode()
    assert encodable(made) == made
    if not any("\ud800" <= character <= "\udfff" for character in text):
        assert made == text


def test_a_surrogate_pair_becomes_its_character_and_a_lone_one_a_replacement_mark() -> None:
    assert encodable("\ud83d\ude00") == "\U0001f600"
    assert encodable("a\ud83d!") == "a\ufffd!"
    assert encodable("Grüße") == "Grüße"


def test_encoding_mends_text_that_json_cannot_hold() -> None:
    assert decode_message(encode(UserMessage("\ud800"))) == UserMessage("\ufffd")
    assert decode_messages(encode([UserMessage("\ud800")])) == (UserMessage("\ufffd"),)


def test_clean_mends_every_string_of_a_message_and_keeps_a_good_one() -> None:
    good = UserMessage("fine")
    assert clean(good) is good
    bad = AssistantMessage(
        (TextPart("\ud800"), ProviderPart("p", "k", {"\udfff": ["\ud800", 1]})), model=ModelRef("p", "n")
    )
    mended = clean(bad)
    assert decode_message(encode(mended)) == mended
    assert mended.content[1] == ProviderPart("p", "k", {"\ufffd": ["\ufffd", 1]})
