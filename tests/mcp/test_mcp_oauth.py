"""Authorisation, and tokens that outlive the process."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
import time
from typing import Any

import pytest

from support.mcp_servers import ask
from support.oauth_server import OAuthServer
from treadle import ConfigError, MCPError, ToolError
from treadle.mcp import MCPServer, OAuth


@pytest.fixture
def store(tmp_path):
    return tmp_path / "state" / "tokens.json"


def opened(server: OAuthServer, store: Any, **options: Any) -> MCPServer:
    auth = OAuth(store=store, open_url=options.pop("open_url", server.browser))
    return MCPServer.http(server.url, auth=auth, name="guarded", **options)


async def logged_in(server: OAuthServer, store: Any) -> None:
    async with opened(server, store) as client:
        await client.ready()


def entry(server: OAuthServer, store: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.read_text())[server.url]
    return found


def rewrite(server: OAuthServer, store: Any, **values: Any) -> None:
    store.write_text(json.dumps({server.url: {**entry(server, store), **values}}))


async def test_a_person_is_asked_once_and_the_tokens_are_kept_for_the_user_alone(store):
    async with OAuthServer() as server:
        async with opened(server, store) as client:
            assert (await ask(client, "secret")).content == "42"
        async with opened(server, store) as client:
            assert (await ask(client, "secret")).content == "42"
        assert server.logins == 1
        assert stat.S_IMODE(store.stat().st_mode) == 0o600
        assert entry(server, store)["expires_at"] == pytest.approx(time.time() + 3600, abs=60)


async def test_a_token_that_ended_since_it_was_stored_is_refreshed_before_it_is_used(store):
    async with OAuthServer(lives=1) as server:
        await logged_in(server, store)
        rewrite(server, store, expires_at=time.time() - 4)
        refused, server.lives = server.refused, 3600
        async with opened(server, store) as client:
            assert (await ask(client, "secret")).content == "42"
        assert (server.refreshes, server.logins, server.refused) == (["refresh-1"], 1, refused)
        assert entry(server, store)["tokens"]["refresh_token"] == "refresh-2"


async def test_tokens_refused_before_their_end_lead_to_one_refresh_for_all_and_one_more_try_each(store):
    async with OAuthServer() as server:
        async with opened(server, store) as client:
            (tool,) = await client.tools()
            server.valid.clear()
            outputs = await asyncio.gather(*[tool.invoke() for _ in range(5)])
        assert [output.content for output in outputs] == ["42"] * 5
        assert (server.refreshes, server.logins) == (["refresh-1"], 1)
        assert entry(server, store)["tokens"]["access_token"] == "access-2"


async def test_a_passing_fault_of_the_authorisation_server_keeps_the_grant(store):
    async with OAuthServer() as server:
        await logged_in(server, store)
        rewrite(server, store, expires_at=time.time() - 4)
        server.refresh_status = 500
        async with opened(server, store) as client:
            with pytest.raises(MCPError, match="answered 500 to the refresh of a token; try again"):
                await client.ready()
        server.refresh_status = 200
        async with opened(server, store) as client:
            assert (await ask(client, "secret")).content == "42"
        assert server.logins == 1


async def test_a_refused_refresh_drops_the_grant_and_asks_the_person_again(store):
    async with OAuthServer() as server:
        await logged_in(server, store)
        rewrite(server, store, expires_at=time.time() - 4)
        server.refresh_tokens.clear()
        async with opened(server, store) as client:
            assert (await ask(client, "secret")).content == "42"
        assert (server.refreshes, server.logins) == (["refresh-1"], 2)


async def test_a_person_who_refuses_or_never_comes_back_is_told_in_a_line(store):
    async def nobody(url: str) -> None:
        return

    async with OAuthServer() as server:
        auth = OAuth(store=store, open_url=nobody, wait_seconds=0.2)
        async with MCPServer.http(server.url, auth=auth, name="guarded") as client:
            with pytest.raises(MCPError, match=r"authorisation failed: nobody came back .* within 0.2 seconds"):
                await client.ready()


async def test_time_at_the_authorisation_page_does_not_count_as_connecting(store):
    async with OAuthServer() as server:

        async def slowly(url: str) -> None:
            await asyncio.sleep(0.8)
            await server.browser(url)

        async with opened(server, store, open_url=slowly, connect_timeout_seconds=0.6) as client:
            assert (await client.ready()).name == "guarded"


async def test_no_token_is_logged_or_shown(store, caplog):
    caplog.set_level(logging.DEBUG)
    async with OAuthServer() as server:
        async with opened(server, store) as client:
            (tool,) = await client.tools()
            server.valid.clear()
            await tool.invoke()
            server.valid.clear()
            server.refresh_status = 500
            with pytest.raises(ToolError) as caught:
                await tool.invoke()
        for secret in ("access-1", "access-2", "refresh-1", "refresh-2"):
            assert secret not in caplog.text + str(caught.value) + repr(client)


def test_wrong_options_are_refused():
    with pytest.raises(ConfigError, match="scopes is a list"):
        OAuth(scopes="read")
    with pytest.raises(ConfigError, match="goes with a client_id"):
        OAuth(client_secret="x")
