"""What must not reach a recording, and how it is taken out.

Some of it is known by its place: a field, a header, a query parameter. The rest is known by its value, wherever that
turns up: what the headers of a request carried, and what the environment calls a key.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from treadle.errors import ConfigError
from treadle.events import Event
from treadle.messages import Message, Part
from treadle.model import HostedMCP, ModelRequest, ModelSettings
from treadle.usage import StopReason, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MARK = "[masked]"

# Headers whose values are no secret. Every other one is taken for one.
HARMLESS_HEADERS = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-beta",
        "anthropic-version",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "http-referer",
        "openai-beta",
        "transfer-encoding",
        "user-agent",
        "x-title",
    }
)
_SHORTEST = 8  # characters; a shorter value is a placeholder, and masking it would tear holes into plain words

_FIELD = re.compile(
    r"(?:.*_)?(?:authorization|api_?key|access_?key|private_key|secret|secret_key|password|passwd|credentials?)"
    r"|(?:.*_)?(?:access|auth|authorization|bearer|id|refresh|security|session)_token|token|bearer|cookie"
)
_PARAMETER = re.compile(
    r"([?&](?:api[-_]?key|key|(?:access|auth|id|refresh|session)?[-_]?token|assertion|auth|authorization|sig|signature"
    r"|(?:client[-_]?)?secret|password|x-(?:amz|goog)-(?:signature|credential|security-token))=)[^&#\s\"'<>\\()\[\]]+",
    re.IGNORECASE,
)
_USER = re.compile(r"(://)[^/?#\s\"'<>\\@]+(?=@)")
_VARIABLE = re.compile(r".*(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD)", re.IGNORECASE)
# What an answer of an OAuth server holds.
_GRANTED = re.compile(r'"(?:access_token|refresh_token|id_token|client_secret)"\s*:\s*"([^"\\]+)"')
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9-]*\s+(\S.*)", re.DOTALL)


def without_secret_places(value: Any, found: set[str]) -> Any:
    """JSON data with `MARK` where a field, a header or a part of an address is secret by its name.

    What was taken out of fields and headers is added to `found`.
    """
    if isinstance(value, str):
        return without_secret_parameters(value)
    if isinstance(value, list):
        return [without_secret_places(item, found) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _field(key, item, found) for key, item in value.items()}


def _field(name: str, value: Any, found: set[str]) -> Any:
    if isinstance(value, str) and value and _is_secret(name):
        found.add(value)
        return MARK
    if name in ("headers", "extra_headers") and isinstance(value, dict):
        return {header: _header(header, given, found) for header, given in value.items()}
    return without_secret_places(value, found)


def _header(name: str, value: Any, found: set[str]) -> Any:
    if not isinstance(value, str) or name.lower() in HARMLESS_HEADERS:
        return value
    found.add(value)
    return MARK


def _is_secret(name: str) -> bool:
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).replace("-", "_").lower()
    return _FIELD.fullmatch(words) is not None


def without_secret_parameters(text: str) -> str:
    """`text` with the secret parameters, and the users, of the addresses in it masked."""
    if "=" in text:
        text = _PARAMETER.sub(rf"\1{MARK}", text)
    return _USER.sub(rf"\1{MARK}", text) if "@" in text else text


def in_all_texts(value: Any, change: Any) -> Any:
    """JSON data with `change` made to each of its strings, keys included."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [in_all_texts(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): in_all_texts(item, change) for key, item in value.items()}
    return value


@functools.cache
def _words() -> str:
    """The names and tags that recordings are made of: a value that is a part of one is no secret."""
    kinds = [*get_args(Event), *get_args(Part), *get_args(Message), ModelRequest, ModelSettings, Usage, HostedMCP]
    words = [word for kind in kinds for word in (*kind.__struct_fields__, str(kind.__struct_config__.tag))]
    return "\n".join([*words, *StopReason])


class Secrets:
    """Values that are masked wherever they turn up: as they are, in JSON, and in an address."""

    def __init__(self, given: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        for value in (given,) if isinstance(given, str) else given:
            self._learn(value)
            if value.strip() not in self._values:
                raise ConfigError(f"secrets are texts of {_SHORTEST} characters and more, and no word like 'assistant'")
        for name, value in os.environ.items():
            if _VARIABLE.fullmatch(name):
                self._learn(value)

    def learn_headers(self, headers: Mapping[str, str]) -> None:
        """Takes the value of every header that may be secret."""
        for name, value in headers.items():
            if name.lower() not in HARMLESS_HEADERS:
                self.learn([value])

    def learn_url(self, url: str) -> None:
        """Takes the secret parameters of an address, and its password."""
        parts = urlsplit(url)
        self.learn_form(parts.query)
        self._learn(unquote(parts.password or ""))

    def learn_form(self, text: str) -> None:
        """Takes the secret parameters of a query or a form."""
        for name, value in parse_qsl(text):
            if without_secret_parameters(f"?{name}=x") != f"?{name}=x":
                self._learn(value)

    def learn_answer(self, body: str) -> None:
        """Takes the tokens that an answer grants."""
        self.learn(_GRANTED.findall(body))

    def learn(self, values: Iterable[str]) -> None:
        """Takes values that are secret by their place, with and without a scheme such as `Bearer`."""
        for value in values:
            self._learn(value)
            if (match := _SCHEME.fullmatch(value)) is not None:
                self._learn(match[1])
                if value.lower().startswith("basic "):
                    self._learn(_password(match[1]))

    def _learn(self, value: str) -> None:
        value = value.strip()
        if len(value) >= _SHORTEST and value not in self._values and value not in _words():
            self._values.add(value)
            self.__dict__.pop("_spelled", None)

    @functools.cached_property
    def _spelled(self) -> list[str]:
        """The values in all their spellings; the longest first, since one may begin with another."""
        ways = (str, _in_json, _in_json_in_json, _in_ascii_json, _in_ascii_json_in_json, _in_address, quote)
        return sorted({way(value) for value in self._values for way in ways}, key=len, reverse=True)

    def show_in(self, line: str) -> bool:
        """Whether a secret stands in a line of JSON."""
        return any(secret in line for secret in self._spelled)

    def span(self, text: str, pieces: list[str]) -> bool:
        """Whether something is secret in `text` that is not seen in each of its pieces alone."""
        if without_secret_parameters(text) != "".join(map(without_secret_parameters, pieces)):
            return True
        return self.mask(text) != "".join(map(self.mask, pieces))

    def mask(self, text: str) -> str:
        """`text` without the secrets."""
        for secret in self._spelled:
            if secret in text:
                text = text.replace(secret, MARK)
        return text


def _password(credentials: str) -> str:
    """The password in what `Basic` sends."""
    try:
        return base64.b64decode(credentials).decode().partition(":")[2]
    except ValueError:
        return ""


def _in_json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _in_json_in_json(value: str) -> str:
    return _in_json(_in_json(value))


def _in_ascii_json(value: str) -> str:
    return json.dumps(value)[1:-1]


def _in_ascii_json_in_json(value: str) -> str:
    return _in_json(_in_ascii_json(value))


def _in_address(value: str) -> str:
    return quote(value, safe="")
