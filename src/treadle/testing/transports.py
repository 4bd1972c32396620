"""Transports that record and replay at the HTTP client, for tests of adapters. httpx2 is loaded when one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    import httpx2


def recording_transport(
    inner: httpx2.AsyncBaseTransport, path: str | os.PathLike[str], *, secrets: Iterable[str] = ()
) -> httpx2.AsyncBaseTransport:
    """A transport that passes everything through `inner` and writes requests and whole answers to the file `path`.

    For `client=httpx2.AsyncClient(transport=...)`. The file takes its place when the client is closed; where the
    client's block raises, the old one stays, as with `record`. Secrets are masked as there; of headers only a few that
    are no secret are kept. Bodies are kept as they came, unpacked: as text, or as base64 where they are none.
    """
    from treadle.testing._transports import RecordingTransport

    return RecordingTransport(inner, path, secrets)


def replaying_transport(path: str | os.PathLike[str]) -> httpx2.AsyncBaseTransport:
    """A transport that answers from such a file, by method, path, body and the headers that were kept.

    A request that was not recorded raises `ReplayMismatch`. Closing the client raises it for what was swallowed, and
    for recorded requests that nobody made. `TREADLE_MODEL_REQUESTS=deny` refuses before a transport is asked.
    """
    from treadle.testing._transports import ReplayingTransport

    return ReplayingTransport(path)
