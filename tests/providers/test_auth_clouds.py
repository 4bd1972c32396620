"""Models on other people's clouds: addresses, bodies and signatures, beside what the vendors' own clients send."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import Any

import httpx2
import pytest
from anthropic import AnthropicBedrockMantle, AnthropicVertex, AsyncAnthropicBedrockMantle, AsyncAnthropicVertex
from google import genai
from google.genai import types
from google.oauth2.credentials import Credentials as UserCredentials
from google.oauth2.service_account import Credentials as ServiceAccount

from support import claude, google
from support.chat import DONE, chunk, sse, text
from support.clouds import ACCESS_KEY, SECRET_KEY, document, is_signed, service_account, token
from support.loopback import BOUND, Loopback, Reply, Seen
from treadle import Agent, FilePart, ModelRetry, Retry, RunError, TextPart, tool
from treadle.errors import (
    AuthenticationError,
    ConfigError,
    ModelError,
    ModelRequestsDenied,
    UnsupportedError,
)
from treadle.messages import AssistantMessage, ModelRef, ProviderPart, ReasoningPart, UserMessage
from treadle.model import ModelRequest, ModelSettings, ToolSpec
from treadle.providers import resolve
from treadle.providers.anthropic.clouds import bedrock_model
from treadle.providers.anthropic.clouds import vertex_model as claude_on_vertex
from treadle.providers.auth import google_auth
from treadle.providers.google.vertex import vertex_model as gemini_on_vertex
from treadle.providers.openai_chat import OpenAIChatModel

HELLO = ModelRequest("Be short.", (UserMessage("hello"),), max_output_tokens=100)
CLAUDE = Reply((claude.answer(*claude.text("hi")),))
GEMINI = Reply((google.sse(google.chunk(google.text("hi"), finish="STOP")),))
CHAT = Reply((sse(text("hi"), chunk(finish="stop"), DONE),))
VERSION = {"anthropic_version": "vertex-2023-10-16"}  # their client asks for that of its own release
VARIABLES = (
    "ANTHROPIC_VERTEX_BASE_URL",
    "ANTHROPIC_VERTEX_PROJECT_ID",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_REGION",
    "AWS_SESSION_TOKEN",
    "ANTHROPIC_BEDROCK_MANTLE_BASE_URL",
    "AZURE_OPENAI_API_KEY",
    "AZURE_CLIENT_ID",
    "CLOUD_ML_REGION",
    "GEMINI_API_KEY",
    "GOOGLE_API_KEY",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_LOCATION",
    "GOOGLE_CLOUD_PROJECT",
)


@pytest.fixture(autouse=True)
def nobody(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def aws(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("AWS_REGION", "us-west-2")


async def collect(model: Any, request: ModelRequest = HELLO) -> list[Any]:
    async with asyncio.timeout(BOUND):
        return [event async for event in model.stream(request)]


def signed_by(text: str = "ya29.t") -> httpx2.Auth:
    return google_auth(UserCredentials(text))


# Gemini on Google Cloud


async def ask_google_s_client(server: Loopback, **options: Any) -> None:
    def ask() -> list[str | None]:
        http_options = types.HttpOptions(base_url=server.origin)
        with genai.Client(vertexai=True, http_options=http_options, **options) as client:
            stream = client.models.generate_content_stream(model="gemini-3-pro", contents="hello")
            return [part.text for part in stream]

    assert await asyncio.to_thread(ask) == ["hi"]


async def test_gemini_on_vertex_is_asked_as_by_google_s_own_client():
    async with Loopback(GEMINI, GEMINI, document({"totalTokens": 3})) as server:
        place = {"project": "weaving", "location": "europe-west4", "credentials": UserCredentials("ya29.t")}
        await ask_google_s_client(server, **place)
        ours = gemini_on_vertex(
            "gemini-3-pro", project="weaving", location="europe-west4", base_url=server.origin, auth=signed_by()
        )
        await collect(ours, ModelRequest(None, (UserMessage("hello"),)))
        assert await ours.count_tokens(HELLO) == 3
        them, us, counted = server.requests
        assert us.path == them.path
        assert us.headers["authorization"] == them.headers["authorization"] == "Bearer ya29.t"
        assert us.body["contents"] == them.body["contents"]
        assert counted.path == us.path.replace("streamGenerateContent?alt=sse", "countTokens")


async def test_express_mode_is_asked_as_by_google_s_own_client():
    async with Loopback(GEMINI) as server:
        await ask_google_s_client(server, api_key="AIza-key")
        await collect(resolve("google-vertex:gemini-3-pro", base_url=server.origin, api_key="AIza-key"))
        them, us = server.requests
        assert us.path == them.path
        assert us.headers["x-goog-api-key"] == them.headers["x-goog-api-key"] == "AIza-key"
        assert "authorization" not in us.headers


async def test_express_mode_takes_the_key_from_the_environment_where_there_is_no_project(monkeypatch):
    monkeypatch.setenv("GOOGLE_API_KEY", "AIza-key")
    async with Loopback(GEMINI) as server:
        await collect(resolve("google-vertex:gemini-3-pro", base_url=server.origin))
        assert server.requests[0].headers["x-goog-api-key"] == "AIza-key"


@pytest.mark.parametrize("location", ["global", "us", "eu", "europe-west4", "us-central1"])
def test_each_location_has_the_address_that_google_s_and_anthropic_s_clients_know(location: str):
    credentials = UserCredentials("t")
    with genai.Client(vertexai=True, project="p", location=location, credentials=credentials) as theirs:
        base = theirs._api_client._http_options.base_url
    assert gemini_on_vertex("m", project="p", location=location, auth=signed_by())._url.startswith(base)
    ours = claude_on_vertex("m", project="p", location=location, auth=signed_by())
    with AnthropicVertex(region=location, project_id="p", access_token="t") as anthropic_s:
        assert ours._url.startswith(str(anthropic_s.base_url))


# Claude on Google Cloud


def make_vertex(server: Loopback, name: str = "claude-opus-4-6", **more: Any) -> Any:
    given = {"project": "weaving", "location": "europe-west1", "base_url": f"{server.origin}/v1", "auth": signed_by()}
    return claude_on_vertex(name, **(given | more))


def anthropic_s_client(server: Loopback) -> AsyncAnthropicVertex:
    return AsyncAnthropicVertex(
        region="europe-west1", project_id="weaving", access_token="ya29.t", base_url=f"{server.origin}/v1"
    )


async def test_claude_on_vertex_is_asked_as_by_anthropic_s_own_client():
    async with Loopback(CLAUDE, CLAUDE) as server:
        name = "claude-opus-4-5@20251101"
        asked: Any = {"model": name, "max_tokens": 100, "system": [{"type": "text", "text": "Be short."}]}
        said: Any = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
        async with anthropic_s_client(server) as theirs, theirs.messages.stream(messages=said, **asked) as stream:
            assert await stream.get_final_text() == "hi"
        await collect(make_vertex(server, name))
        them, us = server.requests
        assert us.path == them.path
        assert us.path.endswith("/publishers/anthropic/models/claude-opus-4-5@20251101:streamRawPredict")
        assert us.body == them.body | VERSION
        assert "model" not in us.body
        assert us.headers["authorization"] == them.headers["authorization"] == "Bearer ya29.t"
        assert us.headers.keys() & {"x-api-key", "anthropic-version"} <= them.headers.keys()


async def test_tokens_on_vertex_are_counted_as_by_anthropic_s_own_client():
    async with Loopback(document({"input_tokens": 7})) as server:
        said: Any = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
        system: Any = [{"type": "text", "text": "Be short."}]
        async with anthropic_s_client(server) as theirs:
            await theirs.messages.count_tokens(model="claude-opus-4-6", messages=said, system=system)
        assert await make_vertex(server).count_tokens(HELLO) == 7
        them, us = server.requests
        assert us.path == them.path
        assert us.body == them.body | VERSION


async def test_a_request_on_vertex_may_bring_its_own_version_and_betas():
    settings = ModelSettings(extra_body={"anthropic_version": "vertex-next"}, extra_headers={"anthropic-beta": "b"})
    async with Loopback(CLAUDE) as server:
        await collect(make_vertex(server), ModelRequest(None, HELLO.messages, settings=settings))
        [seen] = server.requests
        assert seen.raw.count(b"anthropic_version") == 1
        assert seen.body["anthropic_version"] == "vertex-next"
        assert seen.headers["anthropic-beta"] == "b"


# Claude on Amazon Bedrock


async def test_claude_on_bedrock_is_asked_as_by_anthropic_s_own_client():
    async with Loopback(CLAUDE, CLAUDE) as server:
        base_url = f"{server.origin}/anthropic"
        said: Any = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
        system: Any = [{"type": "text", "text": "Be short."}]
        asked: Any = {"model": "anthropic.claude-opus-5", "max_tokens": 100, "system": system, "messages": said}
        async with (
            AsyncAnthropicBedrockMantle(api_key="bedrock-key-1", aws_region="us-west-2", base_url=base_url) as theirs,
            theirs.messages.stream(**asked) as stream,
        ):
            assert await stream.get_final_text() == "hi"
        name = "anthropic-bedrock:anthropic.claude-opus-5"
        await collect(resolve(name, base_url=base_url, api_key="bedrock-key-1"))
        them, us = server.requests
        assert us.path == them.path == "/anthropic/v1/messages"
        assert us.body == them.body
        assert us.headers["authorization"] == them.headers["authorization"] == "Bearer bedrock-key-1"
        assert us.headers.keys() & {"x-api-key", "anthropic-version"} == {"anthropic-version"}


def test_bedrock_has_the_address_that_anthropic_s_client_knows(monkeypatch):
    monkeypatch.setenv("AWS_REGION", "ap-northeast-1")
    with AnthropicBedrockMantle(api_key="k") as theirs:
        assert bedrock_model("anthropic.claude-opus-5")._url == f"{theirs.base_url}v1/messages"
    assert "us-east-1" in bedrock_model("anthropic.claude-opus-5", region="us-east-1")._url


async def test_without_a_key_requests_to_bedrock_are_signed(aws):
    def judge(seen: Seen) -> Reply:
        if not is_signed(seen):
            return document({"message": "wrong signature"}, 403)
        return document({"input_tokens": 7}) if seen.path.endswith("count_tokens") else CLAUDE

    async with Loopback(*[judge] * 9) as server:
        model = resolve("anthropic-bedrock:anthropic.claude-opus-5", base_url=f"{server.origin}/anthropic")
        assert (await Agent(model).run("größe")).text == "hi"
        assert await model.count_tokens(HELLO) == 7  # type: ignore[attr-defined]
        assert "/us-west-2/bedrock-mantle/aws4_request" in server.requests[0].headers["authorization"]
        assert server.requests[1].path == "/anthropic/v1/messages/count_tokens"


async def test_a_bedrock_key_in_the_environment_goes_before_a_signature(aws, monkeypatch):
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key-1")
    async with Loopback(CLAUDE) as server:
        await collect(resolve("anthropic-bedrock:anthropic.claude-opus-5", base_url=server.origin))
        assert server.requests[0].headers["authorization"] == "Bearer bedrock-key-1"


async def test_a_model_that_is_not_there_gets_a_hint_about_names(aws):
    async with Loopback(document({"message": "no such model"}, 404)) as server:
        with pytest.raises(ModelError, match=r"names of models begin with 'anthropic\.'"):
            await collect(resolve("anthropic-bedrock:claude-opus-5", base_url=server.origin))


# Azure


async def test_a_key_of_azure_goes_before_a_token(monkeypatch):
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key-1")
    async with Loopback(CHAT) as server:
        await collect(resolve("azure:gpt-5", base_url=server.origin))
        [seen] = server.requests
        assert seen.headers["api-key"] == "azure-key-1"
        assert "authorization" not in seen.headers


@pytest.mark.parametrize("prefix", ["azure", "azure-responses"])
async def test_without_a_key_azure_is_asked_for_a_token(monkeypatch, prefix: str):
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")  # nothing else is tried, and nothing sent
    async with Loopback(CHAT) as server:
        with pytest.raises(AuthenticationError, match=r"Azure gave no token: .*AZURE_CLIENT_SECRET") as raised:
            await collect(resolve(f"{prefix}:gpt-5", base_url=server.origin))
        assert (raised.value.provider, raised.value.model) == (prefix, "gpt-5")
        assert not server.requests


async def test_a_client_that_signs_by_itself_is_left_alone():
    async with Loopback(CHAT) as server, httpx2.AsyncClient(auth=signed_by("mine"), trust_env=False) as client:
        await collect(OpenAIChatModel("gpt-5", provider="azure", base_url=server.origin, client=client))
        assert server.requests[0].headers["authorization"] == "Bearer mine"


# All of them


async def test_the_default_credentials_of_the_machine_sign_what_goes_to_google(monkeypatch, tmp_path):
    async with Loopback(token("ya29.adc")) as tokens, Loopback(CLAUDE, GEMINI) as server:
        (tmp_path / "key.json").write_text(json.dumps(service_account(tokens.origin)))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
        monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "weaving")
        monkeypatch.setenv("GOOGLE_API_KEY", "not-this")
        for prefix in ("anthropic-vertex:claude-opus-4-6", "google-vertex:gemini-3-pro"):
            model = resolve(prefix, base_url=server.origin)
            assert (await Agent(model).run("hello")).text == "hi"
            assert str(ModelRef(model.provider, model.name)) == prefix
        for seen in server.requests:
            assert seen.headers["authorization"] == "Bearer ya29.adc"
            assert "/projects/weaving/locations/global/" in seen.path
            assert "x-goog-api-key" not in seen.headers


async def test_a_token_that_cannot_be_had_ends_a_run_as_one_of_our_errors():
    refusal = document({"error": "invalid_grant", "error_description": "no"}, 400)
    async with Loopback(refusal) as tokens, Loopback(CLAUDE) as server:
        auth = google_auth(ServiceAccount.from_service_account_info(service_account(tokens.origin)))
        with pytest.raises(RunError, match="invalid_grant: no") as raised:
            await Agent(make_vertex(server, auth=auth)).run("hello")
        cause = raised.value.__cause__
        assert isinstance(cause, AuthenticationError)
        assert (cause.provider, cause.model) == ("anthropic-vertex", "claude-opus-4-6")
        assert len(tokens.requests) == 1
        assert not server.requests


async def test_a_token_server_that_comes_back_is_a_matter_of_trying_again():
    async with Loopback() as gone:
        pass
    async with Loopback(token("ya29.late")) as tokens, Loopback(CLAUDE) as server:
        person = {"refresh_token": "r", "client_id": "i", "client_secret": "s"}
        credentials = UserCredentials(None, token_uri=f"{gone.origin}/token", **person)
        agent = Agent(make_vertex(server, auth=google_auth(credentials)), retry=Retry(attempts=2, base_seconds=0.01))
        retries = []
        async with agent.stream("hello") as run:
            async for event in run:
                if isinstance(event, ModelRetry):
                    retries.append(event)
                    credentials._token_uri = f"{tokens.origin}/token"
            assert (await run.result()).text == "hi"
        assert len(retries) == 1
        assert len(server.requests) == 1


async def test_where_requests_are_denied_no_token_is_fetched(monkeypatch):
    monkeypatch.setenv("TREADLE_MODEL_REQUESTS", "deny")
    async with Loopback(token("t")) as tokens, Loopback(CLAUDE) as server:
        auth = google_auth(ServiceAccount.from_service_account_info(service_account(tokens.origin)))
        with pytest.raises(ModelRequestsDenied):
            await collect(make_vertex(server, auth=auth))
        assert not tokens.requests
        assert not server.requests


@pytest.mark.parametrize("in_stream", [False, True])
async def test_what_a_server_repeats_of_a_token_is_not_shown(in_stream: bool):
    error = {"type": "error", "error": {"type": "permission_error", "message": "ya29.secret may not"}}
    refusal = Reply((claude.sse(error),)) if in_stream else document(error, 403)
    async with Loopback(refusal) as server:
        with pytest.raises(AuthenticationError, match=r"\*\*\* may not") as raised:
            await collect(make_vertex(server, auth=signed_by("ya29.secret")))
        assert "ya29.secret" not in repr(raised.value)


def test_a_project_and_a_region_are_asked_for_in_one_line():
    for prefix, variable in (
        ("anthropic-vertex", "GOOGLE_CLOUD_PROJECT"),
        ("google-vertex", "GOOGLE_CLOUD_PROJECT"),
        ("anthropic-bedrock", "AWS_REGION"),
    ):
        with pytest.raises(ConfigError, match=variable) as raised:
            resolve(f"{prefix}:m")
        assert "\n" not in str(raised.value)


def test_what_the_clouds_do_not_have_is_told_by_the_capabilities():
    vertex = claude_on_vertex("claude-opus-4-6", project="p", auth=signed_by()).capabilities
    assert (vertex.hosted_mcp, vertex.hosted_web_search, vertex.output_schema) == (False, True, True)
    bedrock = bedrock_model("anthropic.claude-opus-5", region="us-east-1").capabilities
    assert (bedrock.hosted_mcp, bedrock.hosted_web_search, bedrock.output_schema) == (False, False, False)
    assert bedrock.token_counting
    assert bedrock.files


def test_files_by_url_are_refused_where_the_cloud_fetches_none():
    picture = UserMessage((TextPart("what is this?"), FilePart("image/png", url="https://example.org/a.png")))
    for model in (claude_on_vertex("claude-opus-4-6", project="p", auth=signed_by()), bedrock_model("m", region="r")):
        with pytest.raises(UnsupportedError, match="no file by url"):
            model.check(ModelRequest(None, (picture,)))


async def test_cache_marks_stand_on_blocks_where_clouds_may_not_place_them(aws):
    weather = ToolSpec("weather", "The weather.", {"type": "object", "properties": {}})
    request = ModelRequest("Be short.", HELLO.messages, (weather,))
    async with Loopback(CLAUDE) as server:
        await collect(make_vertex(server), request)
        await collect(bedrock_model("anthropic.claude-opus-5", base_url=server.origin), request)
        for seen in server.requests:
            assert "cache_control" not in seen.body
            [message] = seen.body["messages"]
            assert message["content"] == [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]
            assert json.dumps(seen.body).count("cache_control") == 2


async def test_each_request_on_a_cloud_extends_the_last_one_but_for_the_marks():
    @tool(effect="read")
    def weather() -> str:
        """The weather."""
        return "sunny"

    called = Reply((claude.answer(*claude.call("", name="weather"), reason="tool_use"),))
    async with Loopback(called, CLAUDE) as server:
        await Agent(make_vertex(server), tools=[weather]).run("how is it?")
        first, second = (_unmarked(seen.body["messages"]) for seen in server.requests)
        assert second[: len(first)] == first
        assert second[-1]["content"][0]["type"] == "tool_result"
        assert server.requests[1].body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


def _unmarked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **message,
            "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in message["content"]],
        }
        for message in messages
    ]


@pytest.mark.parametrize("start", ["anthropic", "anthropic-vertex", "anthropic-bedrock", "openai"])
async def test_signed_thinking_goes_along_between_the_places_of_the_same_models(start: str):
    thought = ReasoningPart("hm", signature="signed")
    redacted = ProviderPart("anthropic", "redacted_thinking", {"type": "redacted_thinking", "data": "sealed"})
    found = ProviderPart("anthropic", "web_fetch_tool_result", {"type": "web_fetch_tool_result", "data": "theirs"})
    said = AssistantMessage((thought, redacted, found, TextPart("hi")), model=ModelRef(start, "claude-opus-4-6"))
    async with Loopback(CLAUDE) as server:
        await collect(make_vertex(server), ModelRequest(None, (*HELLO.messages, said, *HELLO.messages)))
        kinds = [block["type"] for block in server.requests[0].body["messages"][1]["content"]]
    kept = [] if start == "openai" else ["thinking", "redacted_thinking"]
    own = ["web_fetch_tool_result"] if start == "anthropic-vertex" else []
    assert kinds == [*kept, *own, "text"]


def test_models_on_clouds_are_made_without_an_http_client():
    program = """
import os, sys
os.environ |= {"GOOGLE_CLOUD_PROJECT": "p", "AWS_REGION": "us-east-1", "AZURE_OPENAI_BASE_URL": "https://x"}
from treadle import Agent
for name in ("google-vertex:m", "anthropic-vertex:m", "anthropic-bedrock:m", "azure:m", "azure-responses:m"):
    Agent(name)
print([name for name in ("httpx2", "google.auth", "requests", "azure.identity", "botocore") if name in sys.modules])
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


@pytest.mark.parametrize(
    ("absent", "prefix", "text"),
    [
        ("google.auth", "google-vertex", 'treadle[vertex]"'),
        ("google.auth", "anthropic-vertex", 'treadle[vertex]"'),
        ("botocore", "anthropic-bedrock", 'treadle[bedrock]"): set AWS_BEARER_TOKEN_BEDROCK or pass api_key'),
        ("azure.identity", "azure", 'treadle[azure]"): set AZURE_OPENAI_API_KEY or pass api_key'),
    ],
)
def test_a_missing_extra_is_named_where_something_must_sign(absent: str, prefix: str, text: str):
    program = f"""
import asyncio, importlib.abc, os, sys
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {absent!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
os.environ |= {{"GOOGLE_CLOUD_PROJECT": "p", "AWS_REGION": "us-east-1"}}
from treadle import Agent
from treadle.errors import TreadleError
try:
    Agent("{prefix}:m" if "{prefix}" != "azure" else __import__("treadle.providers").providers.resolve(
        "azure:m", base_url="http://127.0.0.1:9"), retry=None).run_sync("hello")
except TreadleError as error:
    print(error)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert out.stdout.count("\n") == 1
    assert text in out.stdout


@pytest.mark.parametrize("prefix", ["google-vertex", "anthropic-vertex"])
def test_a_client_that_signs_needs_no_extra(prefix: str):
    program = f"""
import sys
sys.modules["google"] = None
import httpx2
from treadle.errors import ConfigError
from treadle.providers import resolve
print(resolve("{prefix}:m", client=httpx2.AsyncClient(auth=("name", "word"))))
try:
    resolve("{prefix}:m", client=httpx2.AsyncClient())
except ConfigError as error:
    print(error)
"""
    env = os.environ | {"GOOGLE_CLOUD_PROJECT": "p"}
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    model, refused = out.stdout.splitlines()
    assert f"{prefix}:m" in model
    assert 'pip install "treadle[vertex]"' in refused
