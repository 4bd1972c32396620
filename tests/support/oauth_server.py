"""An MCP server behind OAuth, with its authorisation server, in one loopback server. Tokens live as long as they are
told to."""

from __future__ import annotations

import asyncio
import json
import urllib.parse
from typing import Any, Self

from support.loopback import Loopback, Reply, Seen

EMPTY = {"type": "object", "properties": {}}


class OAuthServer:
    """`async with OAuthServer() as server`: an MCP server at `server.url`."""

    def __init__(self, *, lives: int = 3600) -> None:
        self.lives = lives
        self.valid: set[str] = set()
        self.refresh_tokens: set[str] = set()
        self.issued = 0
        self.refreshes: list[str] = []
        self.logins = 0
        self.refused = 0
        self.refresh_status = 200
        self._loopback = Loopback(self._answer)

    async def __aenter__(self) -> Self:
        await self._loopback.__aenter__()
        self.origin = self._loopback.origin
        self.url = f"{self.origin}/mcp"
        return self

    async def __aexit__(self, *exc_info: Any) -> None:
        await self._loopback.__aexit__(*exc_info)

    async def browser(self, url: str) -> None:
        """Does what a person would: agrees, and goes where the page leads."""
        self.logins += 1
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
        back = urllib.parse.urlsplit(query["redirect_uri"])
        asked = urllib.parse.urlencode({"code": "code", "state": query["state"]})
        reader, writer = await asyncio.open_connection(back.hostname, back.port)
        writer.write(f"GET {back.path}?{asked} HTTP/1.1\r\nhost: {back.netloc}\r\n\r\n".encode())
        assert b"200 OK" in await reader.read()
        writer.close()

    def _answer(self, seen: Seen) -> Reply:
        path = seen.path.partition("?")[0]
        if path == "/.well-known/oauth-protected-resource/mcp":
            return _json({"resource": self.url, "authorization_servers": [self.origin]})
        if path == "/.well-known/oauth-authorization-server":
            return _json(
                {
                    "issuer": self.origin,
                    "authorization_endpoint": f"{self.origin}/login",
                    "token_endpoint": f"{self.origin}/oauth/token",
                    "registration_endpoint": f"{self.origin}/register",
                    "response_types_supported": ["code"],
                    "code_challenge_methods_supported": ["S256"],
                }
            )
        if path == "/register":
            return _json({**seen.body, "client_id": "client"}, status=201)
        if path == "/oauth/token":
            return self._token(dict(urllib.parse.parse_qsl(seen.raw.decode())))
        if path == "/mcp":
            return self._mcp(seen)
        return _json({}, status=404)

    def _token(self, form: dict[str, str]) -> Reply:
        if form["grant_type"] == "refresh_token":
            self.refreshes.append(form["refresh_token"])
            if self.refresh_status != 200:
                return _json({"error": "invalid_grant"}, status=self.refresh_status)
            if form["refresh_token"] not in self.refresh_tokens:
                return _json({"error": "invalid_grant"}, status=400)
            self.refresh_tokens.remove(form["refresh_token"])
        self.issued += 1
        self.valid = {f"access-{self.issued}"}
        self.refresh_tokens.add(f"refresh-{self.issued}")
        return _json(
            {
                "access_token": f"access-{self.issued}",
                "token_type": "Bearer",
                "expires_in": self.lives,
                "refresh_token": f"refresh-{self.issued}",
            }
        )

    def _mcp(self, seen: Seen) -> Reply:
        if seen.headers.get("authorization", "").removeprefix("Bearer ") not in self.valid:
            self.refused += 1
            where = f'Bearer resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
            return _json({}, status=401, **{"www-authenticate": where})
        if not seen.raw or "id" not in seen.body:
            return Reply(status=405 if not seen.raw else 202, whole=True)
        method = seen.body["method"]
        results = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "secret", "inputSchema": EMPTY}]},
            "tools/call": {"content": [{"type": "text", "text": "42"}]},
        }
        if method not in results:
            error = {"jsonrpc": "2.0", "id": seen.body["id"], "error": {"code": -32601, "message": "What?"}}
            return _json(error, status=400)
        return _json({"jsonrpc": "2.0", "id": seen.body["id"], "result": results[method]})


def _json(value: Any, *, status: int = 200, **headers: str) -> Reply:
    return Reply(
        (json.dumps(value).encode(),), status=status, content_type="application/json", headers=headers, whole=True
    )
