"""Claude on other clouds: the same wire under another address, signed by the cloud's own library."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from treadle.errors import ConfigError
from treadle.providers._endpoint import Key
from treadle.providers._vertex import check_sign_in, first_set, sign_for_google, vertex_address
from treadle.providers.anthropic import AnthropicModel
from treadle.providers.anthropic._platform import Platform

if TYPE_CHECKING:
    import httpx2


def vertex_model(
    name: str,
    *,
    project: str | None = None,
    location: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    auth: httpx2.Auth | None = None,
    client: httpx2.AsyncClient | None = None,
    idle_timeout_seconds: float = 120.0,
) -> AnthropicModel:
    """A Claude model on Google Cloud, in the spelling of there: `claude-opus-4-5@20251101`.

    `project` is otherwise `ANTHROPIC_VERTEX_PROJECT_ID` or `GOOGLE_CLOUD_PROJECT`, `location` is `CLOUD_ML_REGION`,
    `GOOGLE_CLOUD_LOCATION` or `global`. Without `auth` requests are signed by `google_auth()`; an `api_key` is an
    access token in its place. There are no hosted MCP servers and no files by URL (2026-11).
    """
    project = project or first_set("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")
    location = location or first_set("CLOUD_ML_REGION", "GOOGLE_CLOUD_LOCATION") or "global"
    if project is None:
        raise ConfigError("anthropic-vertex needs a Google Cloud project: set GOOGLE_CLOUD_PROJECT or pass project")
    check_sign_in(api_key, auth, client)
    models = f"/projects/{quote(project)}/locations/{quote(location)}/publishers/anthropic/models"
    platform = Platform(
        provider="anthropic-vertex",
        key=Key(sign=sign_for_google),
        base_url=f"{vertex_address(location)}/v1",
        base_url_variables=("ANTHROPIC_VERTEX_BASE_URL",),
        endings=("/v1",),
        path=f"/v1{models}/{quote(name, safe='@')}:streamRawPredict",
        counting_path=f"/v1{models}/count-tokens:rawPredict",
        version="vertex-2023-10-16",
        marks_by_itself=False,
        hosted_mcp=False,
        file_urls=False,
        missing_model="check the model name, and that the project may use it at this location",
    )
    return AnthropicModel(
        name,
        base_url=base_url,
        api_key=api_key,
        auth=auth,
        client=client,
        idle_timeout_seconds=idle_timeout_seconds,
        platform=platform,
    )


def bedrock_model(
    name: str,
    *,
    region: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    auth: httpx2.Auth | None = None,
    client: httpx2.AsyncClient | None = None,
    idle_timeout_seconds: float = 120.0,
) -> AnthropicModel:
    """A Claude model on Amazon Bedrock, by its Messages endpoint. Names begin there with `anthropic.`.

    `region` is otherwise `AWS_REGION` or `AWS_DEFAULT_REGION`. The key is a Bedrock API key, from
    `AWS_BEARER_TOKEN_BEDROCK` unless `api_key` is given; without one requests are signed by `aws_auth()`, or `auth`.
    There are no hosted tools, no output schemas and no files by URL (2026-11).
    """
    variable = "ANTHROPIC_BEDROCK_MANTLE_BASE_URL"
    region = region or first_set("AWS_REGION", "AWS_DEFAULT_REGION")
    if not (region or base_url or first_set(variable)):
        raise ConfigError(f"anthropic-bedrock:{name}: there is no AWS region: set AWS_REGION or pass region")

    def sign() -> httpx2.Auth:
        from treadle.providers.auth import aws_auth

        return aws_auth(region=region)

    platform = Platform(
        provider="anthropic-bedrock",
        key=Key(variables=("AWS_BEARER_TOKEN_BEDROCK",), sign=sign),
        base_url=f"https://bedrock-mantle.{region}.api.aws/anthropic",
        base_url_variables=(variable,),
        marks_by_itself=False,
        hosted_mcp=False,
        hosted_web_search=False,
        output_schema=False,
        file_urls=False,
        missing_model="names of models begin with 'anthropic.' there, and not every region has each",
    )
    return AnthropicModel(
        name,
        base_url=base_url,
        api_key=api_key,
        auth=auth,
        client=client,
        idle_timeout_seconds=idle_timeout_seconds,
        platform=platform,
    )
