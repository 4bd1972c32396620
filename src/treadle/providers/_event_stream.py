"""The events of a body: `text/event-stream` in pieces of any size."""

from __future__ import annotations

# One event, or one answer that is no event stream. Pictures in answers take some megabytes.
MAX_EVENT_BYTES = 64 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class OversizedAnswer(Exception):
    """An event or a document that is larger than `MAX_EVENT_BYTES`."""


def collect(document: bytearray, data: bytes) -> None:
    """Adds a piece to a body that is one value. Raises `OversizedAnswer` when it has grown too large."""
    document += data
    if len(document) > MAX_EVENT_BYTES:
        raise OversizedAnswer


class EventSplitter:
    """Cuts the bytes of an event stream into `(name, data)`, whatever pieces they come in.

    Follows the `text/event-stream` rules of the HTML standard: LF, CRLF or CR, comments, a byte order mark, data of
    several lines. Events without data are left out, and a last event needs no blank line after it.
    """

    __slots__ = ("_after_cr", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._after_cr = False

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """The events that `data` completes."""
        if (event := self._one_event(data)) is not None:
            return [event]
        if not data:
            return []
        if self._after_cr or b"\r" in data:
            data = self._unify(data)
        if self._rest:
            seen = len(self._rest)
            collect(self._rest, data)
            if self._rest.find(b"\n\n", seen - 1) < 0:
                return []
            data = bytes(self._rest)
            self._rest.clear()
        blocks = data.split(b"\n\n")
        self._rest += blocks.pop()
        return [event for block in blocks if (event := _event(block)) is not None]

    def _one_event(self, data: bytes) -> tuple[bytes, bytes] | None:
        """Most servers send each event in a piece of its own, bare or under a name: the short way for these."""
        if self._rest or self._after_cr:
            return None
        if data.endswith(b"\r\n\r\n") and data.startswith(b"data: "):  # Google's
            end = len(data) - 4
            return (b"", data[6:end]) if data.find(b"\r") == end > 6 and data.find(b"\n") == end + 1 else None
        if b"\r" in data or not data.endswith(b"\n\n"):
            return None
        end, line = len(data) - 2, data.find(b"\n")
        if data.startswith(b"data: "):
            return (b"", data[6:-2]) if line == end > 6 else None
        if data.startswith(b"event: ") and data.startswith(b"data: {", line + 1) and data.find(b"\n", line + 1) == end:
            return data[7:line], data[line + 7 : -2]
        return None

    def finish(self) -> list[tuple[bytes, bytes]]:
        """The event that the end of the body completes, if there is one."""
        block = bytes(self._rest)
        self._rest.clear()
        event = _event(block)
        return [] if event is None else [event]

    def _unify(self, data: bytes) -> bytes:
        """`data` with LF for every line end. A CRLF may be cut in two."""
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _event(block: bytes) -> tuple[bytes, bytes] | None:
    if block.startswith(b"data: ") and b"\n" not in block and len(block) > 6:
        return b"", block[6:]
    if block.startswith(b"event: ") and block.count(b"\n") == 1:
        head, _, data = block.partition(b"\ndata: {")  # an event of Anthropic's or of the Responses API
        if data:
            return head[7:], b"{%b" % data
    name, lines = b"", []
    for line in block.removeprefix(_BOM).split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            lines.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    data = b"\n".join(lines)
    return (name, data) if data.strip() else None
