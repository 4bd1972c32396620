"""Access tokens: kept, renewed before they end, and fetched by the cloud's own library off the event loop."""

from __future__ import annotations

import functools
import inspect
import math
import time
from datetime import UTC
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2

from treadle._threads import run_in_thread
from treadle.errors import AuthenticationError, ConfigError
from treadle.providers.auth._failures import token_error
from treadle.providers.auth._one_fetch import OneFetch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from google.auth.credentials import Credentials

# Seconds before its end when a token is renewed. Each library keeps to the same: asked earlier, it gives the old one.
GOOGLE_EARLY_SECONDS = 225.0
AZURE_EARLY_SECONDS = 300.0
# How long a request waits for a token. Chains of credentials ask command lines and metadata servers in turn.
TOKEN_SECONDS = 60.0


class Grant(NamedTuple):
    """What a token adds to a request, when to renew it and when it ends, in seconds since 1970."""

    headers: dict[str, str]
    renew_at: float
    ends: float


def granted(headers: dict[str, str], ends: float, early: float) -> Grant:
    """A token with less time left than twice `early` is renewed at half of that, and so never time and again.

    One that a header cannot carry is refused here: further on, errors would show it.
    """
    if not all(value.isascii() and value.isprintable() and value[-1:].strip() for value in headers.values()):
        raise ValueError("what it gave is no token that a header can carry")
    return Grant(headers, ends - min(early, (ends - time.time()) / 2), ends)


class AsyncAuth(httpx2.Auth):
    """An auth object that may wait, and never blocks. Shows no secret."""

    def __init__(self, cloud: str) -> None:
        self.cloud = cloud

    def __repr__(self) -> str:
        return f"<{self.cloud} auth>"

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        raise ConfigError(f"{self.cloud} auth is for an httpx2.AsyncClient and cannot sign {request.url.host}")


class FixedAuth(AsyncAuth):
    """The same headers on each request."""

    def __init__(self, cloud: str, headers: dict[str, str]) -> None:
        super().__init__(cloud)
        self._headers = headers

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        request.headers.update(self._headers)
        yield request


class TokenAuth(AsyncAuth):
    """A token on each request. `fetch` gets the grant that a server refused, if one did.

    Only a request without a valid token waits for one; the others go on with the old one while it is renewed.
    """

    def __init__(self, cloud: str, fetch: Callable[[Grant | None], Awaitable[Grant]], hint: str) -> None:
        super().__init__(cloud)
        self._fetch, self._hint = fetch, hint
        self._grant: Grant | None = None
        self._fetching: OneFetch[Grant] = OneFetch(self._keep)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        grant = await self._current(None)
        request.headers.update(grant.headers)
        response = yield request
        if response.status_code != 401:
            return
        try:
            renewed = await self._current(grant)
        except AuthenticationError:
            return  # the refusal itself says more than a renewal that failed
        if renewed.headers != grant.headers:
            request.headers.update(renewed.headers)
            yield request

    async def _current(self, refused: Grant | None) -> Grant:
        grant, now = self._grant, time.time()
        fetch = functools.partial(self._fetch, refused)
        if grant is None or grant is refused or grant.ends <= now:
            try:
                return await self._fetching.outcome(fetch, TOKEN_SECONDS)
            except Exception as error:  # noqa: BLE001 - made one of ours
                raise token_error(self.cloud, error, self._hint) from None
        if grant.renew_at <= now:
            self._fetching.begin(fetch)
        return grant

    def _keep(self, grant: Grant) -> None:
        self._grant = grant


class GoogleTokens:
    """Fetches tokens by google-auth."""

    def __init__(self, credentials: Credentials | None, scopes: tuple[str, ...]) -> None:
        self._given, self._scopes = credentials, scopes
        self._credentials: Any = None  # google-auth types only some of what it does

    async def fetch(self, refused: Grant | None) -> Grant:
        return await run_in_thread(functools.partial(self._fetch, refused))

    def _fetch(self, refused: Grant | None) -> Grant:
        from google.auth.credentials import TokenState
        from google.auth.transport.requests import Request

        credentials = self._credentials = self._credentials or self._find()
        if refused is not None or credentials.token_state is not TokenState.FRESH:
            credentials.refresh(Request())
        headers: dict[str, str] = {}
        credentials.apply(headers)
        ends = math.inf if credentials.expiry is None else credentials.expiry.replace(tzinfo=UTC).timestamp()
        return granted(headers, ends, GOOGLE_EARLY_SECONDS)

    def _find(self) -> Any:
        import google.auth
        from google.auth import credentials

        if self._given is None:
            return google.auth.default(scopes=self._scopes)[0]
        return credentials.with_scopes_if_required(self._given, self._scopes)  # type: ignore[no-untyped-call]


class AzureTokens:
    """Fetches tokens by azure-identity, or by whatever has its `get_token`, synchronous or not."""

    def __init__(self, credential: Any, scope: str) -> None:
        self._credential: Any = credential
        self._scope = scope

    async def fetch(self, _refused: Grant | None) -> Grant:
        # The credential keeps its tokens itself: after a 401 it may have another one, or not.
        if inspect.iscoroutinefunction(getattr(self._credential, "get_token", None)):
            token = await self._credential.get_token(self._scope)
        else:
            token = await run_in_thread(self._fetch)
        return granted({"authorization": f"Bearer {token.token or ''}"}, float(token.expires_on), AZURE_EARLY_SECONDS)

    def _fetch(self) -> Any:
        if self._credential is None:
            from azure.identity import DefaultAzureCredential

            self._credential = DefaultAzureCredential()
        return self._credential.get_token(self._scope)
