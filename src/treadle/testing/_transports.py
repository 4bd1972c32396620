"""Recording and replaying at the HTTP client: whole answers as their bytes came.

The only module here that knows httpx2. It speaks no HTTP itself: it stands in front of a transport, or in its stead.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import httpx2

from treadle.testing._recording_file import RecordingError, RecordingWriter, encode, read_recording
from treadle.testing._secrets import Secrets, without_secret_parameters, without_secret_places
from treadle.testing._shelf import Exchange, Shelf, digest

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterable, Iterator

_KIND = "http"
_REQUEST_HEADERS = ("content-type", "anthropic-version", "anthropic-beta", "openai-beta")
_ANSWER_HEADERS = (
    "content-type",
    "location",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "request-id",
    "x-request-id",
    "apim-request-id",
    "x-ms-request-id",
    "x-amzn-requestid",
    "cf-ray",
)


class RecordingTransport(httpx2.AsyncBaseTransport):
    """Passes everything through `inner`, and writes it down. See `treadle.testing.recording_transport`."""

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, path: str | os.PathLike[str], secrets: Iterable[str] = ()
    ) -> None:
        self._inner = inner
        self._secrets = Secrets(secrets)
        self._writer = RecordingWriter(path, _KIND, self._secrets)
        self._open = 0
        self._closed = False

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The inner transport's answer. It is written when its body ends, breaks or is closed."""
        self._secrets.learn_headers(request.headers)
        self._secrets.learn_url(str(request.url))
        asked = await _asked(request, self._secrets)
        self._open += 1
        try:
            response = await self._inner.handle_async_request(request)
        except BaseException as error:
            self._open -= 1
            if isinstance(error, Exception):
                self._writer.append({"request": asked, "answer": {"failure": _failure(error)}})
            raise
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Listened(self, asked, response),
            extensions=response.extensions,
        )

    def ended(self, asked: dict[str, Any], response: httpx2.Response, body: bytes, error: Exception | None) -> None:
        """Writes an exchange whose body has ended, or broke with `error`."""
        self._open -= 1
        if not self._closed:
            answer = _answer(response, body, self._secrets)
            self._writer.append({"request": asked, "answer": answer | ({"failure": _failure(error)} if error else {})})

    async def __aexit__(self, kind: Any = None, error: BaseException | None = None, trace: Any = None) -> None:
        if error is not None and not self._closed:
            self._closed = True
            self._writer.abandon()
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the inner transport, and puts the recording in its place."""
        await self._inner.aclose()
        if self._closed:
            return
        self._closed = True
        if self._open:
            self._writer.abandon()
            raise RecordingError(f"{self._open} answers had not ended when the client was closed: read or close them")
        self._writer.publish()


class _Listened(httpx2.AsyncByteStream):
    """A body on its way to its reader. No generator: one that is closed from outside would leave others behind."""

    def __init__(self, transport: RecordingTransport, asked: dict[str, Any], response: httpx2.Response) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        self._transport, self._asked, self._response = transport, asked, response
        self._stream = response.stream
        self._chunks = aiter(response.stream)
        self._body = bytearray()
        self._ended = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._end()
            raise
        except Exception as error:
            self._end(error)
            raise
        self._body += chunk
        return chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
        self._end()

    def _end(self, error: Exception | None = None) -> None:
        if not self._ended:
            self._ended = True
            self._transport.ended(self._asked, self._response, bytes(self._body), error)


class ReplayingTransport(httpx2.AsyncBaseTransport):
    """Answers from a recording. See `treadle.testing.replaying_transport`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._shelf: Shelf[dict[str, Any]] = Shelf(path, _exchanges(path))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """The recorded answer. Raises `ReplayMismatch`."""
        asked = await _asked(request)
        answer = self._shelf.take(asked, digest(encode(asked)))
        failure = _failure_from(answer.get("failure"), request)
        if failure is not None and "status" not in answer:
            raise failure
        stream = _Replayed(_body_from(answer), failure)
        return httpx2.Response(answer["status"], headers=answer["headers"], stream=stream)

    async def __aexit__(self, kind: Any = None, error: BaseException | None = None, trace: Any = None) -> None:
        if error is None:
            await self.aclose()

    async def aclose(self) -> None:
        """Raises `ReplayMismatch` for what was swallowed, and for what was not asked for."""
        self._shelf.assert_used_up()


class _Replayed(httpx2.AsyncByteStream):
    """A recorded body, and how it broke."""

    def __init__(self, body: bytes, failure: Exception | None) -> None:
        self._body, self._failure = body, failure

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        body, self._body = self._body, b""
        if body:
            return body
        raise StopAsyncIteration if self._failure is None else self._failure

    async def aclose(self) -> None: ...


# Values


async def _asked(request: httpx2.Request, secrets: Secrets | None = None) -> dict[str, Any]:
    """What is compared of a request. What is secret by its place is masked, and told to `secrets`."""
    body = await request.aread()
    headers = {name: request.headers[name] for name in _REQUEST_HEADERS if name in request.headers}
    path = without_secret_parameters(request.url.raw_path.decode())
    value = {"method": request.method, "path": path, "headers": headers}
    if not body:
        return value
    if headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        form = body.decode("latin-1")
        if secrets is not None:
            secrets.learn_form(form)
        return value | {"form": without_secret_parameters(f"?{form}")[1:]}
    found: set[str] = set()
    try:
        value["json"] = without_secret_places(json.loads(body), found)
    except ValueError:  # no JSON
        return value | _body(body, secrets)
    if secrets is not None:
        secrets.learn(found)
    return value


def _answer(response: httpx2.Response, body: bytes, secrets: Secrets) -> dict[str, Any]:
    headers = {name: response.headers[name] for name in _ANSWER_HEADERS if name in response.headers}
    if "location" in headers:
        headers["location"] = without_secret_parameters(headers["location"])
    body = _unpacked(response, body)
    secrets.learn_answer(body.decode(errors="replace"))
    return {"status": response.status_code, "headers": headers, **_body(body, secrets)}


def _unpacked(response: httpx2.Response, body: bytes) -> bytes:
    """What is packed is recorded unpacked: no secret could be found in it."""
    encoding = response.headers.get("content-encoding")
    if encoding is None:
        return body
    try:
        return httpx2.Response(200, headers={"content-encoding": encoding}, content=body).content
    except httpx2.DecodingError as error:
        raise RecordingError(f"an answer cannot be recorded: it is packed ({encoding}), and broken") from error


def _body(body: bytes, secrets: Secrets | None) -> dict[str, Any]:
    """Text where that loses nothing; base64 of what is no text, in which nobody would find a secret later."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        if secrets is not None:
            body = secrets.mask(body.decode("latin-1")).encode("latin-1")
        return {"body_base64": base64.b64encode(body).decode()}


def _body_from(answer: dict[str, Any]) -> bytes:
    packed = answer.get("body_base64")
    return answer["body"].encode() if packed is None else base64.b64decode(packed, validate=True)


def _failure(error: Exception) -> dict[str, Any]:
    known = isinstance(error, httpx2.HTTPError | httpx2.StreamError)
    return {"type": type(error).__name__ if known else "TransportError", "text": str(error)}


def _failure_from(value: dict[str, Any] | None, request: httpx2.Request) -> Exception | None:
    if value is None:
        return None
    kind = getattr(httpx2, value["type"], None)
    if not (isinstance(kind, type) and issubclass(kind, httpx2.TransportError)):
        kind = httpx2.TransportError
    return kind(value["text"], request=request)


def _exchanges(path: str | os.PathLike[str]) -> Iterator[Exchange[dict[str, Any]]]:
    for number, line in read_recording(path, _KIND):
        try:
            asked, answer = line["request"], line["answer"]
            if "failure" not in answer or "status" in answer:  # told here, with its line, if it is broken
                httpx2.Response(answer["status"], headers=answer["headers"], content=_body_from(answer))
            yield Exchange(number, f"{asked['method']} {asked['path']}", asked, answer, digest(encode(asked)))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise RecordingError(f"{path}: line {number} is no exchange: {error!r}") from error
