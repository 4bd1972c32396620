"""Signatures of AWS: checked by a server of the tests' own, whose arithmetic AWS's published examples check."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import botocore.session
import httpx2
import pytest
from botocore.credentials import Credentials, RefreshableCredentials

from support.clouds import ACCESS_KEY, SECRET_KEY, aws_signature, document, is_signed, signature_parts
from support.loopback import BOUND, Loopback, Reply
from treadle.errors import AuthenticationError, ConfigError, ModelConnectionError
from treadle.providers.auth import aws_auth

BODY = '{"model":"anthropic.claude-opus-5","messages":[{"role":"user","content":"größe"}]}'.encode()
KEYS = Credentials(ACCESS_KEY, SECRET_KEY)


def judge(seen: Any) -> Reply:
    return document({"ok": True}) if is_signed(seen) else document({"message": "wrong signature"}, 403)


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    """A machine on which nobody has logged in to AWS."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


async def ask(auth: httpx2.Auth, server: Loopback, body: bytes = BODY, path: str = "/anthropic/v1/messages") -> int:
    headers = {"content-type": "application/json", "anthropic-version": "2023-06-01"}
    async with httpx2.AsyncClient(auth=auth, trust_env=False) as client, asyncio.timeout(BOUND):
        return (await client.post(server.origin + path, content=body, headers=headers)).status_code


@pytest.mark.parametrize(
    ("method", "target", "headers", "body", "signed", "signature"),
    [
        ("GET", "/", {}, b"", "host;x-amz-date", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            "GET",
            "/?Param2=value2&Param1=value1",
            {},
            b"",
            "host;x-amz-date",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        ("POST", "/", {}, b"", "host;x-amz-date", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        (
            "POST",
            "/",
            {"content-type": "application/x-www-form-urlencoded"},
            b"Param1=value1",
            "content-type;host;x-amz-date",
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
)
def test_the_server_of_these_tests_signs_as_the_published_examples_do(method, target, headers, body, signed, signature):
    headers = {"host": "example.amazonaws.com", "x-amz-date": "20150830T123600Z", **headers}
    scope = "20150830/us-east-1/service/aws4_request"
    assert aws_signature(method, target, headers, body, signed=signed, scope=scope, secret=SECRET_KEY) == signature


@pytest.mark.parametrize("body", [b"", b"{}", BODY, b"x" * 3_000_000])
async def test_the_signature_fits_the_body_that_arrives(body: bytes):
    async with Loopback(*[judge] * 9) as server:
        assert await ask(aws_auth(KEYS, region="us-east-1"), server, body) == 200
        [seen] = server.requests
        parts = signature_parts(seen.headers["authorization"])
        date = seen.headers["x-amz-date"][:8]
        assert parts["Credential"] == f"{ACCESS_KEY}/{date}/us-east-1/bedrock-mantle/aws4_request"
        assert parts["SignedHeaders"] == "content-type;host;x-amz-date"
        assert seen.raw == body


async def test_the_server_of_these_tests_refuses_another_key():
    async with Loopback(*[judge] * 9) as server:
        assert await ask(aws_auth(Credentials(ACCESS_KEY, "another"), region="us-east-1"), server) == 403


async def test_paths_and_queries_are_signed_as_aws_reads_them():
    async with Loopback(*[judge] * 9) as server:
        auth = aws_auth(KEYS, region="eu-west-1", service="bedrock")
        path = "/model/anthropic.claude-opus-5-v1%3A0/invoke?b=2&a=x%20y"
        assert await ask(auth, server, path=path) == 200
        assert "/eu-west-1/bedrock/aws4_request" in server.requests[0].headers["authorization"]


async def test_a_session_token_travels_and_is_signed():
    async with Loopback(*[judge] * 9) as server:
        assert await ask(aws_auth(Credentials(ACCESS_KEY, SECRET_KEY, "session"), region="us-east-1"), server) == 200
        [seen] = server.requests
        assert seen.headers["x-amz-security-token"] == "session"
        assert "x-amz-security-token" in signature_parts(seen.headers["authorization"])["SignedHeaders"]


async def test_the_usual_variables_are_looked_at(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "ap-southeast-2")
    async with Loopback(*[judge] * 9) as server:
        assert await ask(aws_auth(), server) == 200
        assert "/ap-southeast-2/" in server.requests[0].headers["authorization"]


@pytest.mark.parametrize("given", ["environment", "session"])
async def test_a_profile_gives_keys_and_region(monkeypatch, tmp_path, given):
    (tmp_path / "config").write_text("[profile weaver]\nregion = eu-north-1\n")
    (tmp_path / "credentials").write_text(
        f"[weaver]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n"
    )
    session = None
    if given == "environment":
        monkeypatch.setenv("AWS_PROFILE", "weaver")
    else:
        session = botocore.session.Session(profile="weaver")
    async with Loopback(*[judge] * 9) as server:
        assert await ask(aws_auth(session), server) == 200
        assert "/eu-north-1/" in server.requests[0].headers["authorization"]


async def test_a_session_in_the_form_of_boto3_will_do():
    class Session:
        region_name = "us-west-2"

        def get_credentials(self) -> Credentials:
            return KEYS

    async with Loopback(*[judge] * 9) as server:
        assert await ask(aws_auth(Session()), server) == 200
        assert "/us-west-2/" in server.requests[0].headers["authorization"]


def role(lifetimes: list[float], fetched: list[int]) -> RefreshableCredentials:
    """Credentials of a role: each fetch gives keys that last as many minutes as the list says."""

    def fetch() -> dict[str, str]:
        fetched.append(len(fetched))
        minutes = lifetimes[min(len(fetched), len(lifetimes)) - 1]
        ends = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=minutes)
        return {
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
            "token": f"session-{len(fetched)}",
            "expiry_time": ends.isoformat(),
        }

    return RefreshableCredentials.create_from_metadata(fetch(), fetch, "role")


async def test_the_keys_of_a_role_are_renewed_before_they_end_and_once_for_all():
    fetched: list[int] = []
    async with Loopback(*[judge] * 99) as server:
        auth = aws_auth(role([5, 60], fetched), region="us-east-1")
        found = await asyncio.gather(*(ask(auth, server) for _ in range(10)))
        assert found == [200] * 10
        assert {seen.headers["x-amz-security-token"] for seen in server.requests} == {"session-2"}
        assert len(fetched) == 2


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (botocore.exceptions.CredentialRetrievalError(provider="sso", error_msg="log in again"), AuthenticationError),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="http://sts"), ModelConnectionError),
        (botocore.exceptions.ReadTimeoutError(endpoint_url="http://sts"), ModelConnectionError),
    ],
)
async def test_keys_that_cannot_be_fetched_are_one_of_our_errors(error: Exception, kind: type[Exception]):
    class Session:
        def get_credentials(self) -> Any:
            raise error

    async with Loopback(*[judge] * 9) as server:
        with pytest.raises(kind, match="AWS gave no token: "):
            await ask(aws_auth(Session(), region="us-east-1"), server)
        assert not server.requests


async def test_without_credentials_the_error_says_what_to_do():
    async with Loopback(*[judge] * 9) as server:
        with pytest.raises(AuthenticationError, match="AWS_ACCESS_KEY_ID"):
            await ask(aws_auth(region="us-east-1"), server)


async def test_without_a_region_the_error_says_what_to_do():
    async with Loopback(*[judge] * 9) as server:
        with pytest.raises(ConfigError, match="AWS_REGION"):
            await ask(aws_auth(KEYS), server)


async def test_a_bedrock_key_in_the_environment_needs_no_signature(monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-api-key-1\n")
    async with Loopback(document({})) as server:
        auth = aws_auth()
        assert await ask(auth, server) == 200
        assert server.requests[0].headers["authorization"] == "Bearer bedrock-api-key-1"
        assert "bedrock-api-key-1" not in repr(auth)


def test_a_bedrock_key_that_no_header_can_carry_is_refused_without_being_shown(monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "clé")
    with pytest.raises(ConfigError, match="AWS_BEARER_TOKEN_BEDROCK") as raised:
        aws_auth()
    assert "clé" not in str(raised.value)


def test_credentials_that_are_none_are_refused_at_once():
    with pytest.raises(ConfigError, match="botocore"):
        aws_auth((ACCESS_KEY, SECRET_KEY))


def test_the_signature_shows_no_secret():
    assert repr(aws_auth(KEYS, region="us-east-1")) == "<AWS auth>"
