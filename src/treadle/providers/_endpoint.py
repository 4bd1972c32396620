"""One model's place: its address, its key, the headers of each request, and what must be hidden and told of it.

Every adapter holds one `Endpoint`. The key is looked for with the first request, never before.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from treadle.errors import AuthenticationError, ConfigError, ModelError, ModelResponseError
from treadle.providers._connection import Connection
from treadle.providers._counts import count
from treadle.providers._errors import masked
from treadle.providers._lenient import lenient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import httpx2

    from treadle.providers._errors import Refusal

_Row = TypeVar("_Row", bound=msgspec.Struct)
_Kept = TypeVar("_Kept")

_HEADERS = {
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",
    "content-type": "application/json",
    "user-agent": "treadle",
}


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """Where a provider's key is looked for, and how it travels."""

    variables: tuple[str, ...] = ()
    required: bool = False
    header: str = "authorization"
    prefix: str = "Bearer "
    sign: Callable[[], Any] | None = None
    """Makes the auth object for requests without a key, unless the client brings its own."""

    def how(self) -> str:
        """What to do where it is missing."""
        if not self.variables:
            return "pass api_key"
        return f"set {' or '.join(self.variables)}{',' if len(self.variables) > 1 else ''} or pass api_key"


class Endpoint:
    """The credentials of one model and the connection that carries them.

    A key is `api_key` or the first of the variables that is set. `auth` signs each request in the key's stead: then no
    variable is looked at. `own_server` says that the address is the caller's own, which needs no key. `headers` go with
    each request. `refusal_error(refusal, key)` makes the error of an answer that is a refusal.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        key: Key,
        refusal_error: Callable[[Refusal, str | None], ModelError],
        headers: Mapping[str, str] | None = None,
        own_server: bool = False,
        api_key: str | None = None,
        auth: httpx2.Auth | None = None,
        client: httpx2.AsyncClient | None = None,
        idle_timeout_seconds: float = 120.0,
    ) -> None:
        _check_name(provider, model)
        _check_options(f"{provider}:{model}", api_key, client, idle_timeout_seconds)
        if api_key is not None and auth is not None:
            raise ConfigError(f"{provider}:{model}: pass api_key or auth, not both: auth signs in the key's stead")
        self._provider, self._model = provider, model
        self._key, self._api_key, self._signed = key, api_key, auth is not None
        self._required = key.required and not (own_server or auth is not None or client is not None)
        self._sign = key.sign if auth is None and (client is None or client.auth is None) else None
        self._headers = {**_HEADERS, **(headers or {})}
        self._secret: str | None = None
        self._refusal_error = refusal_error
        self.connection = Connection(
            provider=provider,
            model=model,
            headers=self._all_headers,
            refused=self.refused,
            client=client,
            idle_timeout_seconds=idle_timeout_seconds,
            auth=auth,
        )

    def refused(self, refusal: Refusal) -> ModelError:
        """The error of a refusal, in an answer's status or inside its stream."""
        # The words tell the kind, and a key may be a short word: it is taken out of the error's text only.
        text = refusal.text
        for secret in self.connection.secrets():
            text = masked(text, secret)
        return self._refusal_error(refusal._replace(text=text), self._secret)

    def mask(self, text: str) -> str:
        """`text` without the key, or what was signed with."""
        for secret in (self._secret, *self.connection.secrets()):
            text = masked(text, secret)
        return text

    def settle(self, error: Exception, *, ended: bool) -> None:
        """Raises `error`, as ours if it is the network's; behind the `ended` answer the network loses nothing more."""
        failure = self.connection.failure(error)
        if failure is None:
            raise error
        if not ended:
            raise failure from error

    def kept(self, make: Callable[[], _Kept]) -> _Kept:
        """What `make` puts together out of an answer that is all in. Some hold values that nothing can keep."""
        try:
            return make()
        except RecursionError as error:
            self.settle(error, ended=False)
            raise

    async def count(self, url: str, body: bytes, headers: Mapping[str, str] | None, field: str) -> int:
        """The token count in the answer's `field`."""
        try:
            async with await self.connection.post(url, body, headers) as answer:
                found = await answer.read()
                await answer.finish()
        except Exception as error:
            if (failure := self.connection.failure(error)) is None:
                raise
            raise failure from error
        told = lenient(found)
        if isinstance(told, dict) and (counted := count(told, field)) is not None:
            return counted
        text = f"{self._provider}:{self._model}: the answer holds no token count ({field})"
        raise ModelResponseError(text, provider=self._provider, model=self._model, retryable=True)

    def _all_headers(self) -> dict[str, str]:
        key = self._found_key()
        if key:
            if not (key.isascii() and key.isprintable()):
                raise self._key_error("the API key holds characters that a header cannot carry")
            self._secret = key
            return {**self._headers, self._key.header: f"{self._key.prefix}{key}"}
        if self._sign is not None:
            try:
                self.connection.sign_with(self._sign())
            except ConfigError as error:
                raise self._key_error(f"no API key ({error})") from None
        elif self._required:
            raise self._key_error("no API key")
        return self._headers

    def _found_key(self) -> str:
        found = [self._api_key, *map(os.environ.get, () if self._signed else self._key.variables)]
        return next((key.strip() for key in found if key and key.strip()), "")

    def _key_error(self, fault: str) -> AuthenticationError:
        text = f"{self._provider}:{self._model}: {fault}: {self._key.how()}"
        return AuthenticationError(text, provider=self._provider, model=self._model)


def _check_name(provider: str, model: str) -> None:
    if not model:
        raise ConfigError(f"the model has no name: write '{provider}:' and the name behind it")
    if model != model.strip() or not model.isprintable():
        raise ConfigError(f"no model is called {model!r:.80}: leave out the spaces at its ends, and line breaks")


def _check_options(model: str, api_key: Any, client: Any, idle_timeout_seconds: Any) -> None:
    """What type checkers see, for those who use none: further on it would break where nothing tells why."""
    if not isinstance(api_key, str | None):
        raise ConfigError(f"{model}: api_key is text, and is a {type(api_key).__name__}")
    if client is not None:
        import httpx2

        if not isinstance(client, httpx2.AsyncClient):
            kind = type(client)
            raise ConfigError(f"{model}: client is an httpx2.AsyncClient, and is a {kind.__module__}.{kind.__name__}")
    number = isinstance(idle_timeout_seconds, int | float) and not isinstance(idle_timeout_seconds, bool)
    if not (number and idle_timeout_seconds > 0):
        raise ConfigError(f"{model}: idle_timeout_seconds is a number above 0, and is {idle_timeout_seconds!r:.80}")


def base_address(
    provider: str,
    given: str | None,
    *,
    variables: tuple[str, ...] = (),
    default: str | None = None,
    bare_path: str = "",
) -> tuple[str, bool]:
    """The address of a provider, and whether it stands in the stead of the provider's own: then it may need no key.

    It is the `given` one, the first variable's that is set, or the default. One that is a host only gets `bare_path`.
    """
    if not isinstance(given, str | None):
        raise ConfigError(f"base_url is text such as 'https://...', and is a {type(given).__name__}")
    found = [given, *map(os.environ.get, variables)]
    chosen = next((url.strip() for url in found if url and url.strip()), None)
    url = chosen or default
    if url is None:
        hint = f" or set {' or '.join(variables)}" if variables else ""
        raise ConfigError(f"{provider!r} has no known address: pass base_url='https://...'{hint}")
    if not re.match(r"https?://[^/?#]", url, re.IGNORECASE):
        raise ConfigError(f"base_url must begin with http:// or https://, and is {url!r:.200}")
    if re.fullmatch(r"[^/]*//[^/?#]*/?", url):
        url = f"{url.rstrip('/')}{bare_path}"
    return url, chosen is not None and default is not None


def below(url: str, path: str, *, without: tuple[str, ...] = ()) -> str:
    """`url` with `path` behind its own path, the query kept. Endings in `without` are taken off first, one by one."""
    start, mark, query = url.partition("?")
    start = start.rstrip("/")
    for ending in without:
        start = start.removesuffix(ending)
    return f"{start}{path}{mark}{query}"


def for_model(dialect: _Row, model: str, changes: Sequence[tuple[str, dict[str, Any]]]) -> _Row:
    """`dialect` as one model speaks it: with the changes of the first pattern that the beginning of its name fits."""
    for pattern, changed in changes:
        if re.match(pattern, model, re.IGNORECASE):
            return msgspec.structs.replace(dialect, **changed)
    return dialect
