"""No secret reaches a recording, wherever it stands; and what is masked still matches."""

from __future__ import annotations

import base64
import gzip
import json
import urllib.parse

import pytest

from support import chat, claude, google, responses
from support.loopback import Loopback, Reply
from treadle import Agent, ModelError, RunError, tool
from treadle.errors import ConfigError
from treadle.messages import FilePart, TextPart, UserMessage
from treadle.model import HostedMCP, ModelSettings
from treadle.providers.openai_chat import OpenAIChatModel
from treadle.testing import (
    ScriptedModel,
    call,
    call_text,
    error,
    record,
    recording_transport,
    replay,
    replaying_transport,
)
from treadle.testing._secrets import MARK, Secrets, without_secret_parameters, without_secret_places

CANARY = "sk-canary-7f3a91d2e8"

httpx2 = pytest.importorskip("httpx2")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "runs.jsonl"


@pytest.fixture(autouse=True)
def no_keys_of_this_machine(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def several(count):
    """Secrets of which none is a part of another: masking one hides no other."""
    return [f"sk-{number:02}-canary" for number in range(count)]


def spellings(secret):
    """Every way in which a secret may stand in a file."""
    quoted = json.dumps(secret)[1:-1]
    return {secret, quoted, json.dumps(quoted)[1:-1], urllib.parse.quote(secret, safe=""), urllib.parse.quote(secret)}


def assert_clean(folder, *secrets):
    written = [path for path in folder.rglob("*") if path.is_file()]
    assert written
    for path in written:
        data = path.read_bytes()
        for secret in secrets or (CANARY,):
            for spelled in spellings(secret):
                assert spelled.encode() not in data
            assert base64.b64encode(secret.encode())[:-4] not in data


ADAPTERS = {
    "chat": (chat.model, chat.sse, lambda text: [chat.text(text), chat.chunk(finish="stop"), chat.DONE]),
    "anthropic": (claude.model, claude.sse, lambda text: [claude.start(), *claude.text(text), *claude.end()]),
    "openai": (
        responses.model,
        chat.sse,
        lambda text: [
            responses.added(0, responses.message()),
            responses.text(text),
            responses.done(0, responses.message(text)),
            responses.completed(responses.message(text)),
        ],
    ),
    "google": (google.model, google.sse, lambda text: [google.chunk(google.text(text)), google.STOP]),
}


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_a_key_that_the_server_repeats_is_masked(file, tmp_path, adapter):
    """In a refusal, in its header, in an answer, and in one that comes in pieces."""
    model, sse, answer = ADAPTERS[adapter]
    refusal = json.dumps({"error": {"message": f"wrong key {CANARY}!", "code": CANARY, "param": f"Bearer {CANARY}"}})

    def replies():
        head = {"x-request-id": f"id-{CANARY}"}
        yield Reply((refusal.encode(),), status=400, content_type="application/json", headers=head)
        yield Reply((sse(*answer(f"Your key is {CANARY}, keep it.")),))

    async with Loopback(*replies()) as server:
        agent = Agent(model(server, api_key=CANARY), retry=None)
        with record(file):
            with pytest.raises(RunError):
                await agent.run("Hi")
            assert CANARY in (await agent.run(f"What is {CANARY}?")).text
    assert_clean(tmp_path)
    with replay(file):
        agent = Agent(model(server, api_key="another key"), retry=None)
        with pytest.raises(RunError) as caught:
            await agent.run("Hi")
        assert caught.value.__cause__.status == 400
        result = await agent.run(f"What is {CANARY}?")
        assert result.text == f"Your key is {MARK}, keep it."


async def test_a_key_that_comes_in_pieces_is_masked(file, tmp_path):
    pieces = [chat.text(letter) for letter in f"It is {CANARY}, yes."]
    async with Loopback(Reply((chat.sse(*pieces, chat.chunk(finish="stop"), chat.DONE),))) as server:
        with record(file):
            await Agent(chat.model(server, api_key=CANARY)).run("Hi")
    assert_clean(tmp_path)
    answer = json.loads(file.read_text().splitlines()[1])["answer"]
    assert [event.get("text") for event in answer] == [f"It is {MARK}, yes.", None]
    with replay(file):
        assert (await Agent(chat.model(server)).run("Hi")).text == f"It is {MARK}, yes."


async def test_an_address_that_comes_in_pieces_is_masked(file, tmp_path):
    pieces = ("See https://a.example/?to", "ken=abc", "defgh&x=1", " for more.")
    with record(file):
        await Agent(ScriptedModel(list(pieces))).run("Hi")
    assert_clean(tmp_path, "abcdefgh")
    with replay(file):
        text = (await Agent(ScriptedModel()).run("Hi")).text
        assert text == "See https://a.example/?token=[masked]&x=1 for more."


async def test_pieces_that_hold_no_secret_stay_pieces(file):
    async with Loopback(
        Reply((chat.sse(chat.text("It "), chat.text("is."), chat.chunk(finish="stop"), chat.DONE),))
    ) as server:
        with record(file):
            await Agent(chat.model(server, api_key=CANARY)).run("Hi")
    answer = json.loads(file.read_text().splitlines()[1])["answer"]
    assert [event.get("text") for event in answer] == ["It ", "is.", None]


async def test_every_place_of_a_request_is_clean(file, tmp_path, monkeypatch):
    secrets = several(12)
    mcp, header, scheme, field, nested, parameter, user, environment, given, key, url, args = secrets
    monkeypatch.setenv("SOME_SERVICE_TOKEN", environment)

    @tool(effect="read")
    def look(where: str) -> str:
        """Look somewhere."""
        return f"environment: {environment}, header: {header}, given: {given}"

    def agent(*steps):
        return Agent(
            ScriptedModel(*steps),
            tools=[look],
            hosted_mcp=[HostedMCP("docs", f"https://{user}:{user}@mcp.example/sse?token={parameter}&x=1", mcp)],
            settings=ModelSettings(
                extra_headers={"x-own": header, "Authorization": f"Bearer {scheme}", "anthropic-beta": "a-beta-2025"},
                extra_body={"api_key": field, "plugins": [{"id": "web", "clientSecret": nested, "keep": "this"}]},
            ),
        )

    def question():
        return [
            UserMessage(
                (
                    TextPart(f"{mcp} and {scheme} and {field}"),
                    FilePart("image/png", url=f"https://files.example/a.png?X-Amz-Signature={url}&w=1"),
                )
            )
        ]

    script = (
        call("look", where=f"https://api.example/?access_token={args}&page=2"),
        [f"I saw {mcp}, ", f"{header}, {environment}, {nested}, {given}."],
        error(ModelError(f"wrong: {scheme} {field}", request_id=given)),
    )
    with record(file, secrets=[given]):
        running = agent(*script)
        assert given in (await running.run(messages=question())).text
        with pytest.raises(RunError):
            await running.run("Again")
    assert_clean(tmp_path, *[secret for secret in secrets if secret != key])
    text = file.read_text()
    assert '"anthropic-beta":"a-beta-2025"' in text and '"keep":"this"' in text
    assert "x=1" in text and "w=1" in text and "page=2" in text
    # What was masked matches the same secrets, others, and what the replay gave in their stead.
    with replay(file):
        running = agent()
        assert MARK in (await running.run(messages=question())).text
        with pytest.raises(RunError):
            await running.run("Again")
    monkeypatch.delenv("SOME_SERVICE_TOKEN")
    secrets[:] = mcp, header, scheme, field, nested, parameter, user, environment, given, key, url, args = [
        f"other-secret-{number}" for number in range(12)
    ]
    with replay(file):
        assert MARK in (await agent().run(messages=question())).text
        with pytest.raises(RunError):
            await agent().run("Again")


async def test_a_secret_that_shows_up_before_it_is_known_is_masked_too(file, tmp_path):
    async with Loopback(Reply((chat.sse(chat.text("Hi"), chat.chunk(finish="stop"), chat.DONE),))) as server:
        with record(file):
            await Agent(ScriptedModel(f"The key is {CANARY}.")).run(f'Here is "{CANARY}"')
            await Agent(chat.model(server, api_key=CANARY)).run("Hi")
    assert_clean(tmp_path)
    with replay(file):
        assert (await Agent(ScriptedModel()).run(f'Here is "{CANARY}"')).text == f"The key is {MARK}."
        await Agent(chat.model(server)).run("Hi")


async def test_what_is_left_of_a_broken_block_is_clean(file, tmp_path):
    async with Loopback(Reply((chat.sse(chat.text("Hi"), chat.chunk(finish="stop"), chat.DONE),))) as server:
        with pytest.raises(ZeroDivisionError), record(file):  # noqa: PT012
            await Agent(ScriptedModel(f"The key is {CANARY}.")).run("Hi")
            await Agent(chat.model(server, api_key=CANARY)).run("Hi")
            raise ZeroDivisionError
    assert_clean(tmp_path)


async def test_a_key_from_the_environment_and_one_of_the_client_are_masked(file, tmp_path, monkeypatch):
    monkeypatch.setenv("GROQ_API_KEY", CANARY)
    second, third, fourth = several(3)
    body = json.dumps({"error": {"message": f"{CANARY} {second} {third} {fourth}"}}).encode()

    class Signed(httpx2.Auth):
        def auth_flow(self, request):
            request.headers["authorization"] = f"Bearer {third}"
            yield request

    async with Loopback(Reply((body,), status=401, content_type="application/json")) as server:
        async with httpx2.AsyncClient(headers={"x-gateway": second}, auth=Signed()) as client:
            url = f"{server.url}?api-version=1&key={fourth}"
            models = [
                OpenAIChatModel("m", provider="groq", base_url=server.url),
                OpenAIChatModel("m", base_url=url, client=client),
            ]
            with record(file):
                for model in models:
                    with pytest.raises(RunError):
                        await Agent(model, retry=None).run("Hi")
        assert third in server.requests[1].headers["authorization"]
    assert_clean(tmp_path, CANARY, second, third, fourth)


@pytest.mark.parametrize("secret", ['quo"te-and-\\slash', "späce and ümlaut", "a/b+c=d&e?f#ghi"])
async def test_secrets_of_any_spelling_are_masked(file, tmp_path, secret):
    with record(file, secrets=[secret]):
        agent = Agent(
            ScriptedModel(
                call("look", where=f"{secret} https://x.example/?q={urllib.parse.quote(secret, safe='')}"),
                call_text("look", json.dumps({"where": f"{secret} /{urllib.parse.quote(secret)}"})),
                f"It is {json.dumps(secret)}.",
            ),
            tools=[Tool_look],
        )
        await agent.run(f"Say {secret}")
    assert_clean(tmp_path, secret)
    with replay(file):
        await Agent(ScriptedModel(), tools=[Tool_look]).run(f"Say {secret}")


@tool(name="look", effect="read")
def Tool_look(where: str) -> str:  # noqa: N802
    """Look somewhere."""
    return f"Nothing at {where}"


async def test_a_short_or_common_value_is_no_secret(file):
    settings = ModelSettings(extra_headers={"x-client": "assistant", "x-short": "ab"})
    with record(file):
        await Agent(ScriptedModel("about assistants"), settings=settings).run("ab")
    assert "about assistants" in file.read_text() and '"role":"user"' in file.read_text()
    with replay(file):
        await Agent(ScriptedModel(), settings=settings).run("ab")


@pytest.mark.parametrize("given", [["short"], "as-a-plain-text-x", ["text_delta"], [""]])
def test_secrets_that_cannot_be_masked_are_refused(file, given):
    if given == "as-a-plain-text-x":
        assert Secrets(given).mask(f"an {given}") == f"an {MARK}"
        return
    with pytest.raises(ConfigError, match="secrets are texts of 8 characters and more"):
        record(file, secrets=given)


async def test_a_mismatch_shows_no_secret_of_the_new_request(file, monkeypatch):
    with record(file):
        await Agent(ScriptedModel("Hi")).run("Hi")
    monkeypatch.setenv("MY_API_KEY", CANARY)
    settings = ModelSettings(extra_headers={"x-own": f"{CANARY}-2"})
    with pytest.raises(RunError) as caught, replay(file):
        await Agent(ScriptedModel(), settings=settings).run(f"Hi {CANARY}")
    assert CANARY not in str(caught.value)
    assert f"now 'Hi {MARK}'" in str(caught.value)


def test_names_that_are_secret_and_names_that_are_not():
    body = {
        "api_key": "1", "apiKey": "2", "x-api-key": "3", "Authorization": "4", "authorization_token": "5",
        "client_secret": "6", "accessToken": "7", "password": "8", "token": "9", "headers": {"X-Any": "10"},
        "list": [{"refresh_token": "11"}],
    }  # fmt: skip
    found: set[str] = set()
    hidden = without_secret_places(body, found)
    assert found == {str(number) for number in range(1, 12)}
    assert not found & set(json.dumps(hidden).replace('"', " ").split())
    kept = {
        "max_tokens": 5, "stop_token": "x", "next_page_token": "x", "signature": "x", "key": "x", "tokens": "x",
        "properties": {"token": {"type": "string"}}, "required": ["token"], "api_key": None, "password": "",
        "headers": {"Content-Type": "x", "anthropic-beta": "y"},
    }  # fmt: skip
    found.clear()
    assert without_secret_places(kept, found) == kept
    assert not found


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://a.example/p?key=abc&x=1", "https://a.example/p?key=[masked]&x=1"),
        (
            "see https://a.example/?x=1&API_KEY=abc#frag, please",
            "see https://a.example/?x=1&API_KEY=[masked]#frag, please",
        ),
        ('{"url": "https://a.example/?token=abc"}', '{"url": "https://a.example/?token=[masked]"}'),
        ("https://me:pass@a.example/", "https://[masked]@a.example/"),
        ("?X-Goog-Signature=abc&sig=def", "?X-Goog-Signature=[masked]&sig=[masked]"),
        ("https://a.example/?monkey=1&page_token=2&keys=3", "https://a.example/?monkey=1&page_token=2&keys=3"),
        ("write to me@a.example or see a?b=c", "write to me@a.example or see a?b=c"),
    ],
)
def test_secret_parts_of_addresses(text, masked):
    assert without_secret_parameters(text) == masked
    assert without_secret_parameters(masked) == masked


def test_passwords_of_addresses_and_headers_are_known():
    secrets = Secrets()
    secrets.learn_url("https://me:pass%2Fword-1@a.example/?page=public-page")
    secrets.learn_headers({"Authorization": f"Basic {base64.b64encode(b'me:pass-word-2').decode()}", "x": "Basic ?"})
    assert secrets.mask("pass/word-1 pass%2Fword-1 pass-word-2 public-page") == f"{MARK} {MARK} {MARK} public-page"


# At the HTTP client


def canary_reply(seen):
    """Everything a server could repeat."""
    text = f"{CANARY} {seen.headers.get('authorization', '')} {seen.headers.get('x-own', '')} {seen.path}"
    return Reply((chat.sse(chat.text(text), chat.chunk(finish="stop"), chat.DONE),), headers={"set-cookie": CANARY})


async def test_recorded_bodies_are_clean(file, tmp_path):
    header, field, query = several(3)
    settings = ModelSettings(
        extra_headers={"x-own": header},
        extra_body={
            "tools": [{"type": "mcp", "name": "m", "headers": {"X": field}}],
            "authorization": f"Bearer {field}",
        },
    )
    async with Loopback(canary_reply) as server:
        url = f"{server.url}?key={query}"
        transport = recording_transport(httpx2.AsyncHTTPTransport(), file)
        async with httpx2.AsyncClient(transport=transport) as client:
            model = chat.model(server, api_key=CANARY, base_url=url, client=client)
            result = await Agent(model, settings=settings).run(f"Say {field}")
            assert CANARY in result.text and header in result.text and query in result.text
    assert_clean(tmp_path, CANARY, header, field, query)
    async with httpx2.AsyncClient(transport=replaying_transport(file)) as client:
        model = chat.model(server, api_key="another", base_url=url, client=client)
        replayed = await Agent(model, settings=settings).run(f"Say {field}")
        assert MARK in replayed.text


async def test_packed_bodies_and_those_that_are_no_text_are_clean(file, tmp_path):
    packed = Reply((gzip.compress(f"key {CANARY}".encode()),), headers={"content-encoding": "gzip"})
    binary = Reply((b"\xff\x00" + CANARY.encode() + b"\xfe",), content_type="application/octet-stream")
    async with Loopback(packed, binary) as server:
        transport = recording_transport(httpx2.AsyncHTTPTransport(), file)
        async with httpx2.AsyncClient(transport=transport, headers={"x-own": CANARY}) as client:
            assert (await client.get(f"{server.url}/packed")).text == f"key {CANARY}"
            assert (
                CANARY.encode()
                in (await client.post(f"{server.url}/binary", content=b"\xff" + CANARY.encode())).content
            )
    assert_clean(tmp_path)
    for line in file.read_text().splitlines()[1:]:
        for side in json.loads(line).values():
            assert CANARY.encode() not in base64.b64decode(side.get("body_base64", ""))
    async with httpx2.AsyncClient(transport=replaying_transport(file)) as client:
        assert (await client.get("https://elsewhere.example/v1/packed")).text == f"key {MARK}"
        sent = b"\xff" + MARK.encode()
        assert (
            await client.post("https://elsewhere.example/v1/binary", content=sent)
        ).content == b"\xff\x00[masked]\xfe"


async def test_the_secrets_of_a_token_request_are_masked(file, tmp_path):
    secret, assertion, refresh, access = several(4)
    granted = {"access_token": access, "refresh_token": refresh, "token_type": "Bearer"}
    replies = (
        Reply((json.dumps(granted).encode(),), content_type="application/json"),
        Reply((f"{secret} {assertion} {refresh} {access}".encode(),), content_type="text/plain"),
    )
    form = {"client_secret": secret, "grant_type": "client_credentials", "assertion": assertion}
    async with Loopback(*replies) as server:  # noqa: SIM117
        async with httpx2.AsyncClient(transport=recording_transport(httpx2.AsyncHTTPTransport(), file)) as client:
            await client.post(f"{server.url}/token", data=form)
            await client.post(f"{server.url}/ask", json={"access_token": access})
    assert_clean(tmp_path, secret, assertion, refresh, access)
    assert "grant_type=client_credentials" in file.read_text()
    async with httpx2.AsyncClient(transport=replaying_transport(file)) as client:
        form |= {"client_secret": "another", "assertion": "one"}
        answer = (await client.post("https://elsewhere.example/v1/token", data=form)).json()
        assert answer["access_token"] == MARK
        await client.post("https://elsewhere.example/v1/ask", json={"access_token": answer["access_token"]})
