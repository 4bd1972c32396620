"""What a server says that it has."""

from __future__ import annotations

import msgspec


class ServerInfo(msgspec.Struct, frozen=True):
    """What a server says of itself, and the version of the protocol that is spoken with it."""

    name: str
    version: str
    protocol: str
    instructions: str | None = None


class Resource(msgspec.Struct, frozen=True):
    """Something that a server lets read by its URI."""

    uri: str
    name: str
    description: str | None = None
    media_type: str | None = None


class Prompt(msgspec.Struct, frozen=True):
    """A prompt that a server offers. `arguments` maps the names to whether they are required."""

    name: str
    description: str | None
    arguments: dict[str, bool]
