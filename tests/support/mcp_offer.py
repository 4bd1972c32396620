"""What the tests of the MCP server serve: the tools that the official conformance suite asks for, and some of our own."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import threading
from pathlib import Path
from typing import Any, TypedDict

from treadle import Agent, FilePart, Tool, ToolContext, ToolOutput, tool
from treadle.testing import ScriptedModel, call

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x40\x1f\x00\x00\x40\x1f\x00\x00\x01\x00\x08\x00data\x00\x00\x00\x00"

# What the suite asks for


@tool(effect="read")
def test_simple_text() -> str:
    """Returns text."""
    return "This is a simple text response for testing."


@tool(effect="read")
def test_image_content() -> FilePart:
    """Returns an image."""
    return FilePart("image/png", data=PNG)


@tool(effect="read")
def test_audio_content() -> FilePart:
    """Returns a sound."""
    return FilePart("audio/wav", data=WAV)


@tool(effect="read")
def test_embedded_resource() -> FilePart:
    """Returns a text file."""
    return FilePart("text/plain", data=b"This is an embedded resource content.", name="embedded resource.txt")


@tool(effect="read")
def test_multiple_content_types() -> ToolOutput:
    """Returns text, an image and a file."""
    files = (FilePart("image/png", data=PNG), FilePart("application/json", data=b'{"test":"data","value":123}'))
    return ToolOutput("Multiple content types test:", files)


@tool
def test_error_handling() -> str:
    """Fails."""
    raise ValueError("This tool intentionally returns an error for testing")


@tool(effect="read")
async def test_tool_with_progress(context: ToolContext) -> str:
    """Tells of its progress."""
    for percent in (0, 50, 100):
        context.progress(f"Completed step {percent} of 100", percent, 100)
        await asyncio.sleep(0.02)
    return "done"


SCHEMA_2020_12 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
json_schema_2020_12_tool = Tool.raw("json_schema_2020_12_tool", "Has every keyword.", SCHEMA_2020_12, lambda _: "ok")


@tool(effect="read")
def test_logging_tool() -> str:
    """Would log, if it could."""
    return "nothing was logged"


@tool(effect="read")
def test_streaming_elicitation(context: ToolContext) -> str:
    """Tells something before it answers. The suite looks at what else is in the stream."""
    context.progress("begun")
    return "done"


HEADERS = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "query": {"type": "string"}},
    "required": ["region"],
}
mirrored = Tool.raw("mirrored", "Has an argument that clients mirror into a header.", HEADERS, lambda _: "ok")

suite = [
    test_logging_tool,
    test_streaming_elicitation,
    mirrored,
    test_simple_text,
    test_image_content,
    test_audio_content,
    test_embedded_resource,
    test_multiple_content_types,
    test_error_handling,
    test_tool_with_progress,
    json_schema_2020_12_tool,
]

# Our own


class Sum(TypedDict):
    total: int


@tool(effect="read")
def add(a: int, b: int) -> Sum:
    """Adds two numbers."""
    return {"total": a + b}


@tool(effect="read")
def numbers() -> list[int]:
    """Returns an array."""
    return [1, 2, 3]


@tool(effect="read")
def wrong() -> Sum:
    """Returns what it does not promise."""
    return {"total": "many"}  # type: ignore[typeddict-item]


@tool(effect="write", idempotent=True)
def noisy() -> str:
    """Writes to standard output in every way there is."""
    print("noise of print")  # noqa: T201
    sys.stdout.flush()
    os.write(1, b"noise of a descriptor\n")
    os.system("echo noise of a child")
    return f"read {len(os.read(0, 10))} bytes"


def _mark(folder: str, name: str) -> None:
    (Path(folder) / name).touch()


@tool
async def wait(folder: str) -> str:
    """Waits until it is cancelled, and then a little longer."""
    try:
        _mark(folder, "started")
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)  # cleaning up takes a moment
        _mark(folder, "stopped")
    return "never"


@tool
def block(folder: str) -> str:
    """Blocks its thread."""
    _mark(folder, "started")
    threading.Event().wait()
    return "never"


def agent() -> Agent[Any, Any]:
    """An agent that calls a tool and answers."""
    model = ScriptedModel([("I add. "), call("add", a=1, b=2)], ["The sum", " is 3."])
    return Agent(model, name="adding machine", tools=[add])


everything = [*suite, add, numbers, wrong, noisy, wait, block]
agent_and_tools = [agent(), *everything]
