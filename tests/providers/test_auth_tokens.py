"""Tokens: fetched by the clouds' own libraries from a loopback server, kept, renewed, and what can go wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import threading
import time
from typing import Any

import google.auth.exceptions
import httpx2
import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import HttpResponseError
from azure.identity import ClientSecretCredential
from google.auth.credentials import AnonymousCredentials
from google.oauth2 import service_account as google_service_account
from google.oauth2.credentials import Credentials as UserCredentials

from support.clouds import document, form, service_account, token
from support.loopback import BOUND, Loopback, Reply
from treadle.errors import AuthenticationError, ConfigError, ModelConnectionError, ModelError, OverloadedError
from treadle.providers.auth import azure_auth, google_auth
from treadle.providers.auth._one_fetch import OneFetch
from treadle.providers.auth._tokens import Grant, TokenAuth, granted

OK = document({"ok": True})
NO = document({"error": {"message": "who are you?"}}, 401)
SECRET = "Kf8Q~sEcReT.of-the-client_0123456789abcd"


def bearers(server: Loopback) -> list[str]:
    return [seen.headers["authorization"].removeprefix("Bearer ") for seen in server.requests]


def account(server: Loopback) -> Any:
    return google_service_account.Credentials.from_service_account_info(service_account(server.origin))


async def ask(auth: httpx2.Auth, server: Loopback) -> int:
    async with httpx2.AsyncClient(auth=auth, trust_env=False) as client, asyncio.timeout(BOUND):
        return (await client.post(server.url, content=b"{}")).status_code


class Entra:
    """A credential as azure-identity has them, synchronous."""

    def __init__(self, *tokens: str, seconds: float = 3600) -> None:
        self.tokens, self.seconds = list(tokens), seconds
        self.scopes: list[str] = []
        self.threads: set[int] = set()

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        self.scopes += scopes
        self.threads.add(threading.get_ident())
        text = self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]
        return AccessToken(text, int(time.time() + self.seconds))


class AsyncEntra(Entra):
    async def get_token(self, *scopes: str, **more: Any) -> AccessToken:  # type: ignore[override]
        return super().get_token(*scopes, **more)


class Broken:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def get_token(self, *_: str, **__: Any) -> AccessToken:
        raise self.error


# Google


async def test_a_service_account_signs_an_assertion_and_its_token_goes_with_each_request():
    async with Loopback(token("ya29.first")) as tokens, Loopback(OK) as server:
        auth = google_auth(account(tokens))
        assert await ask(auth, server) == 200
        assert await ask(auth, server) == 200
        assert bearers(server) == ["ya29.first"] * 2
        [asked] = tokens.requests
        claims = json.loads(base64.urlsafe_b64decode(form(asked)["assertion"].split(".")[1] + "=="))
        assert asked.path == "/token"
        assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
        assert claims["iss"] == "treadle@weaving.iam.gserviceaccount.com"


async def test_other_scopes_can_be_asked_for():
    async with Loopback(token("ya29.first")) as tokens, Loopback(OK) as server:
        await ask(google_auth(account(tokens), scopes=["https://example.org/a"]), server)
        claims = json.loads(base64.urlsafe_b64decode(form(tokens.requests[0])["assertion"].split(".")[1] + "=="))
        assert claims["scope"] == "https://example.org/a"


async def test_the_default_credentials_are_found_where_google_looks(monkeypatch, tmp_path):
    async with Loopback(token("ya29.found")) as tokens, Loopback(OK) as server:
        (tmp_path / "key.json").write_text(json.dumps(service_account(tokens.origin)))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
        assert await ask(google_auth(), server) == 200
        assert bearers(server) == ["ya29.found"]


async def test_a_person_s_own_credentials_name_the_project_that_pays():
    async with Loopback(token("ya29.person")) as tokens, Loopback(OK) as server:
        person = UserCredentials(
            None,
            refresh_token="refresh",
            token_uri=f"{tokens.origin}/token",
            client_id="id",
            client_secret="hush",
            quota_project_id="weaving",
        )
        await ask(google_auth(person), server)
        assert form(tokens.requests[0])["refresh_token"] == "refresh"
        assert server.requests[0].headers["x-goog-user-project"] == "weaving"
        assert bearers(server) == ["ya29.person"]


async def test_a_token_that_is_still_good_is_used_as_it_is():
    async with Loopback(OK) as server:
        await ask(google_auth(UserCredentials("ya29.given")), server)
        assert bearers(server) == ["ya29.given"]


async def test_a_hundred_requests_at_once_fetch_one_token_and_do_not_block_the_loop():
    release = asyncio.Event()
    async with (
        Loopback(Reply((release, *token("ya29.one").pieces), content_type="application/json")) as tokens,
        Loopback(OK) as server,
        httpx2.AsyncClient(auth=google_auth(account(tokens)), trust_env=False) as client,
        asyncio.timeout(BOUND),
    ):
        asked = [asyncio.create_task(client.post(server.url, content=b"{}")) for _ in range(100)]
        await tokens.asked.wait()  # the loop runs while the thread of the library waits
        release.set()
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
        assert set(bearers(server)) == {"ya29.one"}
        assert len(tokens.requests) == 1


async def test_a_request_that_is_cancelled_takes_the_token_from_nobody():
    release = asyncio.Event()
    async with (
        Loopback(Reply((release, *token("ya29.one").pieces), content_type="application/json")) as tokens,
        Loopback(OK) as server,
        httpx2.AsyncClient(auth=google_auth(account(tokens)), trust_env=False) as client,
        asyncio.timeout(BOUND),
    ):
        first, second = (asyncio.create_task(client.post(server.url, content=b"{}")) for _ in range(2))
        await tokens.asked.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        release.set()
        assert (await second).status_code == 200
        assert len(tokens.requests) == 1


async def test_a_token_that_ended_is_not_sent_again():
    async with Loopback(token("ya29.short", seconds=0), token("ya29.next")) as tokens, Loopback(OK) as server:
        auth = google_auth(account(tokens))
        for _ in range(3):
            assert await ask(auth, server) == 200
        assert bearers(server) == ["ya29.short", "ya29.next", "ya29.next"]


async def test_a_token_is_renewed_before_it_ends_and_nobody_waits_for_that():
    renewing, release = asyncio.Event(), asyncio.Event()
    due = time.time()

    async def fetch(_: Grant | None) -> Grant:
        if not bearers(server):
            return Grant({"authorization": "Bearer old"}, due, due + 3600)
        renewing.set()
        await release.wait()
        return Grant({"authorization": "Bearer new"}, due + 3000, due + 7200)

    async with Loopback(OK) as server, asyncio.timeout(BOUND):
        auth = TokenAuth("Cloud", fetch, "")
        for _ in range(3):
            assert await ask(auth, server) == 200
        assert renewing.is_set()
        assert bearers(server) == ["old"] * 3
        release.set()
        while bearers(server)[-1] != "new":
            assert await ask(auth, server) == 200


async def test_a_renewal_that_fails_leaves_the_old_token_while_it_lasts():
    due, tried = time.time(), 0

    async def fetch(_: Grant | None) -> Grant:
        nonlocal tried
        tried += 1
        if tried > 1:
            raise ConnectionError("gone")
        return Grant({"authorization": "Bearer old"}, due, due + 3600)

    async with Loopback(OK) as server:
        auth = TokenAuth("Cloud", fetch, "")
        for _ in range(4):
            assert await ask(auth, server) == 200
        assert bearers(server) == ["old"] * 4
        assert tried > 2


@pytest.mark.parametrize(("left", "before_the_end"), [(3600, 300), (600, 300), (400, 200), (10, 5)])
def test_a_token_is_renewed_some_minutes_before_its_end_or_at_half_of_what_is_left(left: float, before_the_end: float):
    ends = time.time() + left
    grant = granted({}, ends, 300)
    assert grant.ends - grant.renew_at == pytest.approx(before_the_end, abs=0.5)
    assert granted({}, float("inf"), 300).renew_at == float("inf")


async def test_after_a_401_the_token_is_renewed_once_and_the_request_sent_again():
    async with Loopback(token("ya29.revoked"), token("ya29.good")) as tokens, Loopback(NO, OK) as server:
        auth = google_auth(account(tokens))
        assert await ask(auth, server) == 200
        assert bearers(server) == ["ya29.revoked", "ya29.good"]
        assert [seen.raw for seen in server.requests] == [b"{}", b"{}"]


async def test_a_second_401_is_the_answer():
    async with Loopback(token("ya29.a"), token("ya29.b"), token("ya29.c")) as tokens, Loopback(NO) as server:
        assert await ask(google_auth(account(tokens)), server) == 401
        assert bearers(server) == ["ya29.a", "ya29.b"]


async def test_many_401s_at_once_renew_the_token_once():
    def judge(seen: Any) -> Reply:
        return NO if "revoked" in seen.headers["authorization"] else OK

    async with Loopback(token("ya29.revoked"), token("ya29.good")) as tokens, Loopback(*[judge] * 99) as server:
        async with httpx2.AsyncClient(auth=google_auth(account(tokens)), trust_env=False) as client:
            answers = await asyncio.gather(*(client.post(server.url, content=b"{}") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        assert len(tokens.requests) == 2


async def test_a_401_for_credentials_that_cannot_be_renewed_stays_a_401():
    async with Loopback(NO) as server:
        assert await ask(google_auth(UserCredentials("ya29.given")), server) == 401
        assert len(server.requests) == 1


async def test_a_token_server_that_fails_once_is_asked_again_by_the_library():
    async with Loopback(document({"error": "internal"}, 500), token("ya29.second")) as tokens, Loopback(OK) as server:
        assert await ask(google_auth(account(tokens)), server) == 200
        assert len(tokens.requests) == 2


async def test_a_refused_service_account_is_an_authentication_error_in_one_line():
    refusal = document({"error": "invalid_grant", "error_description": "Invalid JWT\nSignature."}, 400)
    async with Loopback(refusal) as tokens, Loopback(OK) as server:
        with pytest.raises(AuthenticationError) as raised:
            await ask(google_auth(account(tokens)), server)
        assert str(raised.value) == "Google gave no token: invalid_grant: Invalid JWT Signature."
        assert not raised.value.retryable
        assert not server.requests


@pytest.mark.parametrize(
    "error",
    [
        google.auth.exceptions.RefreshError("slow down", {"error": "slow_down"}, retryable=True),
        HttpResponseError("slow down", response=type("Answer", (), {"status_code": 503, "reason": ""})()),
    ],
)
async def test_a_token_server_that_is_overloaded_is_retryable(error: Exception):
    async with Loopback(OK) as server:
        with pytest.raises(OverloadedError, match="gave no token: slow down") as raised:
            await ask(azure_auth(Broken(error)), server)
        assert raised.value.retryable


async def test_a_token_server_that_is_not_there_is_a_retryable_connection_error():
    async with Loopback(OK) as server:
        async with Loopback() as tokens:
            pass
        with pytest.raises(ModelConnectionError, match=r"Google gave no token: .*refused") as raised:
            await ask(google_auth(account(tokens)), server)
        assert raised.value.retryable
        assert "\n" not in str(raised.value)


async def test_what_a_token_server_repeats_of_the_assertion_is_not_shown():
    def echo(seen: Any) -> Reply:
        return document({"error": "invalid_grant", "error_description": form(seen)["assertion"]}, 400)

    async with Loopback(echo) as tokens, Loopback(OK) as server:
        with pytest.raises(AuthenticationError) as raised:
            await ask(google_auth(account(tokens)), server)
        shown = repr(raised.value) + repr(raised.value.__cause__)
        assert not any(piece in shown for piece in form(tokens.requests[0])["assertion"].split("."))


async def test_without_credentials_the_error_says_what_to_do(monkeypatch, tmp_path):
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    async with Loopback(OK) as server:
        with pytest.raises(AuthenticationError, match="gcloud auth application-default login"):
            await ask(google_auth(), server)


async def test_an_error_of_each_request_is_its_own():
    async with Loopback(document({"error": "invalid_grant"}, 400)) as tokens, Loopback(OK) as server:
        auth = google_auth(account(tokens))
        found = await asyncio.gather(ask(auth, server), ask(auth, server), return_exceptions=True)
        assert all(isinstance(error, AuthenticationError) for error in found)
        assert found[0] is not found[1]


async def test_what_was_no_token_is_tried_again_by_the_next_request():
    refusal = document({"error": "invalid_grant"}, 400)
    async with Loopback(refusal, token("ya29.late")) as tokens, Loopback(OK) as server:
        auth = google_auth(account(tokens))
        with pytest.raises(AuthenticationError):
            await ask(auth, server)
        assert await ask(auth, server) == 200


# Azure


@pytest.mark.parametrize("kind", [Entra, AsyncEntra])
async def test_any_credential_with_get_token_will_do(kind: type[Entra]):
    async with Loopback(OK) as server:
        credential = kind("entra-1")
        auth = azure_auth(credential)
        assert await ask(auth, server) == await ask(auth, server) == 200
        assert bearers(server) == ["entra-1", "entra-1"]
        assert credential.scopes == ["https://cognitiveservices.azure.com/.default"]
        assert (threading.get_ident() in credential.threads) is (kind is AsyncEntra)


async def test_another_scope_can_be_asked_for():
    async with Loopback(OK) as server:
        credential = Entra("entra-1")
        await ask(azure_auth(credential, scope="https://ai.azure.com/.default"), server)
        assert credential.scopes == ["https://ai.azure.com/.default"]


async def test_after_a_401_a_new_token_of_azure_is_sent_and_an_old_one_is_not():
    async with Loopback(NO, OK) as server:
        assert await ask(azure_auth(Entra("revoked", "good")), server) == 200
        assert bearers(server) == ["revoked", "good"]
    async with Loopback(NO) as server:
        assert await ask(azure_auth(Entra("same")), server) == 401
        assert bearers(server) == ["same"]


@pytest.mark.parametrize("text", ["", " ", "sEcReT\n", "sEcReT\r\nx-evil: 1", "sEcReT-é", "sEcReT\ud800", None])
async def test_a_token_that_no_header_can_carry_is_none_and_is_not_shown(text):
    async with Loopback(OK) as server:
        with pytest.raises(AuthenticationError, match="no token that a header can carry") as caught:
            await ask(azure_auth(Entra(text)), server)
        assert "sEcReT" not in str(caught.value) and not server.requests


async def test_an_ended_token_of_azure_is_fetched_anew():
    async with Loopback(OK) as server:
        auth = azure_auth(Entra("first", "second", seconds=-1))
        await ask(auth, server)
        await ask(auth, server)
        assert bearers(server) == ["first", "second"]


async def test_the_real_client_secret_credential_gets_its_token_from_a_loopback_authority():
    async with Authority(token("entra-real")) as authority, Loopback(OK) as server:
        auth = azure_auth(authority.credential())
        assert await ask(auth, server) == await ask(auth, server) == 200
        assert bearers(server) == ["entra-real", "entra-real"]
        [asked] = authority.token_requests
        assert asked["client_secret"] == SECRET
        assert asked["scope"].split()[0] == "https://cognitiveservices.azure.com/.default"


async def test_a_wrong_client_secret_is_an_authentication_error_that_does_not_show_it():
    refusal = document(
        {"error": "invalid_client", "error_description": f"AADSTS7000215: Invalid client secret:\r\n{SECRET}"}, 401
    )
    async with Authority(refusal) as authority, Loopback(OK) as server:
        with pytest.raises(AuthenticationError, match="AADSTS7000215") as raised:
            await ask(azure_auth(authority.credential()), server)
        assert SECRET not in repr(raised.value) + repr(raised.value.__cause__)
        assert "\n" not in str(raised.value)


async def test_an_authority_that_is_not_there_is_a_retryable_connection_error():
    async with Authority(token("x")) as authority, Loopback(OK) as server:
        credential = authority.credential()
    async with Loopback(OK) as server:
        with pytest.raises(ModelConnectionError) as raised:
            await ask(azure_auth(credential), server)
        assert raised.value.retryable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("no luck"), AuthenticationError),
        (ConnectionResetError("gone"), ModelConnectionError),
        (TimeoutError(), ModelConnectionError),
        (StopIteration(), AuthenticationError),
        (SystemExit(3), AuthenticationError),
        (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), AuthenticationError),
    ],
)
async def test_whatever_a_credential_raises_is_one_of_ours(error: BaseException, kind: type[ModelError]):
    async with Loopback(OK) as server:
        with pytest.raises(kind) as raised:
            await ask(azure_auth(Broken(error)), server)
        assert "\n" not in str(raised.value)
        assert raised.value.__cause__ is None


class Authority(Loopback):
    """Microsoft's token endpoint, as far as a client credential needs it."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(*[self._judge] * 99)
        self._reply = reply

    def _judge(self, seen: Any) -> Reply:
        if seen.path.endswith("openid-configuration"):
            there = f"{self.origin}/tenant".replace("http://", "https://")
            return document({"issuer": there, "token_endpoint": f"{there}/token", "authorization_endpoint": there})
        return self._reply

    @property
    def token_requests(self) -> list[dict[str, str]]:
        return [form(seen) for seen in self.requests if seen.path.endswith("/token")]

    def credential(self) -> ClientSecretCredential:
        from azure.core.pipeline.transport import RequestsTransport

        class Plain(RequestsTransport):
            """azure-identity insists on https; loopback has none."""

            def send(self, request: Any, **options: Any) -> Any:
                request.url = request.url.replace("https://", "http://")
                return super().send(request, **options)

        host = self.origin.replace("http://", "https://")
        return ClientSecretCredential(
            "tenant",
            "client",
            SECRET,
            authority=host,
            disable_instance_discovery=True,
            transport=Plain(),
            retry_total=0,
        )


# Both


async def test_auth_shows_no_secret():
    auth = google_auth(UserCredentials("ya29.given"))
    async with Loopback(OK) as server:
        await ask(auth, server)
    assert repr(auth) == "<Google auth>"
    assert repr(azure_auth(Entra("entra-1"))) == "<Azure auth>"


def test_a_synchronous_client_is_told_to_be_another_one():
    with httpx2.Client(auth=google_auth(AnonymousCredentials())) as client, pytest.raises(ConfigError, match="Async"):
        client.get("http://127.0.0.1:9/")


def test_one_auth_object_serves_one_loop_after_another():
    credential = Entra("entra-1")
    auth = azure_auth(credential)

    async def once() -> int:
        async with Loopback(OK) as server:
            return await ask(auth, server)

    assert asyncio.run(once()) == asyncio.run(once()) == 200
    assert len(credential.scopes) == 1


def test_loops_in_two_threads_share_one_fetch():
    began, release = threading.Event(), threading.Event()
    fetched: list[str] = []
    fetching: OneFetch[str] = OneFetch(fetched.append)

    async def slow() -> str:
        began.set()
        await asyncio.to_thread(release.wait, BOUND)
        return "token"

    async def second() -> str:
        found = asyncio.wrap_future(fetching.begin(slow))
        release.set()
        return await found

    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(fetching.outcome(slow, BOUND))))
    thread.start()
    assert began.wait(BOUND)
    found.append(asyncio.run(second()))
    thread.join(BOUND)
    assert found == ["token", "token"]
    assert fetched == ["token"]


async def test_a_fetch_that_takes_too_long_is_given_up_and_the_next_begins_anew():
    fetching: OneFetch[str] = OneFetch(lambda _: None)

    async def never() -> str:
        return await asyncio.get_running_loop().create_future()

    async def quick() -> str:
        return "token"

    with pytest.raises(TimeoutError):
        await fetching.outcome(never, 0.0)
    assert await fetching.outcome(quick, BOUND) == "token"


def test_a_loop_that_goes_away_leaves_its_readers_a_connection_error():
    fetching: OneFetch[str] = OneFetch(lambda _: None)

    async def never() -> str:
        return await asyncio.get_running_loop().create_future()

    async def leave() -> Any:
        future = fetching.begin(never)
        await asyncio.sleep(0)
        return future

    with pytest.raises(ConnectionError, match="cancelled"):
        asyncio.run(leave()).result(BOUND)


@pytest.mark.parametrize(
    ("absent", "call", "extra"),
    [
        ("google.auth", "google_auth()", "vertex"),
        ("requests", "google_auth()", "vertex"),
        ("azure.identity", "azure_auth()", "azure"),
        ("botocore", "aws_auth()", "bedrock"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(absent: str, call: str, extra: str):
    program = f"""
import sys, importlib.abc
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {absent!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from treadle.providers import auth
try:
    auth.{call}
except ValueError as error:
    print(type(error).__name__, error)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout == f'ConfigError {absent} is not installed: pip install "treadle[{extra}]"\n'


def test_nothing_of_a_cloud_is_loaded_before_the_first_request():
    program = """
import sys
from treadle.providers.auth import aws_auth, azure_auth, google_auth
google_auth(); azure_auth(); aws_auth(region="us-east-1")
print([name for name in ("google.auth", "requests", "azure.identity", "azure.core", "botocore.session", "boto3")
       if name in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
