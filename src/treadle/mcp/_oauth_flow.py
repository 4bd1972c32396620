"""The SDK's OAuth flow, mended where it forgets: when tokens end, whom to ask for new ones, and that it may try again.

The SDK keeps the lifetime of a token in memory only, sends everybody through the browser when a token is refused
early, drops the grant at any failure of a refresh, and lets one request at a time through.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from treadle.errors import MCPError
from treadle.mcp._oauth import Callback, OAuth, TokenFile, expires_at

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

    from treadle.mcp._spec import Life

_log = logging.getLogger("treadle.mcp")
_EARLY_SECONDS = 10.0  # a token that ends while it travels is of no use
_REFUSED = (400, 401, 403)


class Storage:
    """The SDK's view of one server's entry in the file."""

    def __init__(self, file: TokenFile, url: str, options: OAuth) -> None:
        self._file = file
        self._url = url
        self._options = options
        self.flow: Flow | None = None

    async def get_tokens(self) -> OAuthToken | None:
        found = self._file.read(self._url).get("tokens")
        return None if found is None else OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        metadata = None if self.flow is None else self.flow.context.oauth_metadata
        known = {} if metadata is None else {"metadata": metadata.model_dump(mode="json", exclude_none=True)}
        self._file.update(
            self._url,
            tokens=tokens.model_dump(mode="json", exclude_none=True),
            expires_at=expires_at(tokens.expires_in),
            **known,
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        options = self._options
        if options.client_id is not None:
            return OAuthClientInformationFull(
                client_id=options.client_id,
                client_secret=options.client_secret,
                redirect_uris=None,
                token_endpoint_auth_method="none" if options.client_secret is None else "client_secret_basic",
            )
        found = self._file.read(self._url).get("client")
        return None if found is None else OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._file.update(self._url, client=client_info.model_dump(mode="json", exclude_none=True))


class Flow(OAuthClientProvider):
    """Authorises the requests of one connection. Only refreshing and asking the person is done one at a time."""

    def __init__(self, options: OAuth, url: str, life: Life) -> None:
        self._file = TokenFile(options.store)
        self._url = url
        self._options = options
        self._life = life
        self._gate = asyncio.Lock()
        self._loaded = False
        self._callback: Callback | None = None
        storage = Storage(self._file, url, options)
        metadata = OAuthClientMetadata(
            client_name=options.client_name,
            redirect_uris=[_redirect(options.port)],
            grant_types=["authorization_code", "refresh_token"],
            response_types=["code"],
            scope=" ".join(options.scopes) or None,
        )
        super().__init__(url, metadata, storage, self._open, self._come_back, options.client_metadata_url)
        storage.flow = self

    async def _auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        async with self._gate:
            await self._load()
            if not self.context.is_token_valid() and self.context.can_refresh_token():
                response = yield await self._refresh_token()
                await self._take_refreshed(response)
        used = self._access_token()
        if used is not None:
            self._add_auth_header(request)
        response = yield request
        if response.status_code == 401 and used is not None:
            async with self._gate:
                if self._access_token() == used and self.context.can_refresh_token():
                    refreshed = yield await self._refresh_token()
                    await self._take_refreshed(refreshed)
            if self._access_token() not in (used, None):
                self._add_auth_header(request)
                response = yield request
        if response.status_code not in (401, 403):
            return
        # The rest is the SDK's: it asks again, finds the authorisation server and sends the person there.
        async with self._gate:
            request.headers.pop("Authorization", None)
            try:
                await self._listen()
                inner = super()._auth_flow(request)
                outgoing = await anext(inner)
                while True:
                    response = yield outgoing
                    outgoing = await inner.asend(response)
            except StopAsyncIteration:
                return
            finally:
                if self._callback is not None:
                    self._callback.close()
                    self._callback = None

    def _access_token(self) -> str | None:
        tokens = self.context.current_tokens
        return None if tokens is None else tokens.access_token

    async def _load(self) -> None:
        """What is stored, with the moment at which it ends and the server that can renew it."""
        if self._loaded:
            return
        self._loaded = True
        await self._initialize()
        stored = self._file.read(self._url)
        if self.context.current_tokens is not None:
            self.context.token_expiry_time = stored.get("expires_at")
        if stored.get("metadata") is not None:
            self.context.oauth_metadata = OAuthMetadata.model_validate(stored["metadata"])

    async def _take_refreshed(self, response: httpx2.Response) -> None:
        """Keeps the new tokens. A refusal drops the grant, any other failure keeps it for the next time."""
        if response.status_code == 200:
            await self._handle_refresh_response(response)
            return
        if response.status_code in _REFUSED:
            _log.warning("MCP server %s: the stored authorisation is no longer accepted", self._life.name)
            self.context.clear_tokens()
            self._file.update(self._url, tokens=None, expires_at=None)
            return
        raise MCPError(f"the authorisation server answered {response.status_code} to the refresh of a token; try again")

    # The person

    async def _listen(self) -> None:
        """Listens for the browser, and registers a client for that port where it is another one than before."""
        self._callback = Callback(self._options.port)
        redirect = _redirect(await self._callback.start())
        metadata = self.context.client_metadata
        metadata.redirect_uris = [redirect]
        if self._options.client_id is None:
            self.context.client_info = None

    async def _open(self, url: str) -> None:
        with self._life.asking_a_person():
            opened: Any = self._options.open_url(url)
            if inspect.isawaitable(opened):
                await opened

    async def _come_back(self) -> AuthorizationCodeResult:
        assert self._callback is not None
        self._suit_the_server()
        seconds = self._options.wait_seconds
        try:
            with self._life.asking_a_person():
                query = parse_qs(await self._callback.query(seconds))
        except TimeoutError:
            raise MCPError(f"nobody came back from the authorisation page within {seconds:g} seconds") from None
        if "error" in query:
            raise MCPError(
                f"the authorisation was refused: {' '.join(query['error'] + query.get('error_description', []))}"
            )
        first = {name: values[0] for name, values in query.items()}
        return AuthorizationCodeResult(code=first.get("code", ""), state=first.get("state"), iss=first.get("iss"))

    def _suit_the_server(self) -> None:
        """Sends the secret of a client that was registered by hand in the way that the server takes."""
        client, metadata = self.context.client_info, self.context.oauth_metadata
        taken = None if metadata is None else metadata.token_endpoint_auth_methods_supported
        if client is not None and self._options.client_secret is not None and taken:
            basic = "client_secret_basic" in taken or "client_secret_post" not in taken
            client.token_endpoint_auth_method = "client_secret_basic" if basic else "client_secret_post"


def _redirect(port: int) -> AnyUrl:
    return AnyUrl(f"http://127.0.0.1:{port}/callback")
