"""Auth that needs more than a key: httpx2 auth objects by the clouds' own libraries, each in an extra.

    model = GoogleModel("gemini-3-pro", project="my-project", auth=google_auth())

No credentials are looked for and no token is fetched before the first request. One object may serve many models,
requests and event loops. Whatever goes wrong on the way to a token is a `ModelError`: an `AuthenticationError`, or a
retryable one where the token server could not be reached or failed on its own side.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from treadle.errors import ConfigError
from treadle.providers._extras import require
from treadle.providers.auth._signature import SignatureAuth
from treadle.providers.auth._tokens import AzureTokens, FixedAuth, GoogleTokens, TokenAuth

if TYPE_CHECKING:
    from collections.abc import Sequence

    import httpx2
    from azure.core.credentials import TokenCredential
    from azure.core.credentials_async import AsyncTokenCredential
    from google.auth.credentials import Credentials

__all__ = ["aws_auth", "azure_auth", "google_auth"]

_GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_GOOGLE_HINT = "run 'gcloud auth application-default login' or set GOOGLE_APPLICATION_CREDENTIALS"
_AZURE_SCOPE = "https://cognitiveservices.azure.com/.default"
_AZURE_HINT = "run 'az login', or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET"
_BEDROCK_KEY_VARIABLE = "AWS_BEARER_TOKEN_BEDROCK"


def google_auth(credentials: Credentials | None = None, *, scopes: Sequence[str] = (_GOOGLE_SCOPE,)) -> httpx2.Auth:
    """Signs requests to Google Cloud with an access token.

    Any credentials of google-auth will do, such as `service_account.Credentials`; `None` takes the Application Default
    Credentials. The token is renewed in the background before it ends, and once more when the server answers 401.
    Raises `ConfigError` where the extra `vertex` is not installed.
    """
    require("google.auth", "vertex")
    require("requests", "vertex")
    fetch = GoogleTokens(credentials, tuple(scopes)).fetch
    return TokenAuth("Google", fetch, "" if credentials is not None else _GOOGLE_HINT)


def azure_auth(
    credential: TokenCredential | AsyncTokenCredential | None = None, *, scope: str = _AZURE_SCOPE
) -> httpx2.Auth:
    """Signs requests to Azure with a token of Microsoft Entra ID.

    Any credential of azure-identity will do, and whatever else has its `get_token`, synchronous or not; `None` takes a
    `DefaultAzureCredential`. `scope` is the one that Azure OpenAI and Foundry resources take; Foundry projects want
    `https://ai.azure.com/.default`, and other clouds have others (2026-11). The token is renewed in the background
    before it ends. Raises `ConfigError` where no credential is given and the extra `azure` is not installed.
    """
    if credential is None:
        require("azure.identity", "azure")
    fetch = AzureTokens(credential, scope).fetch
    return TokenAuth("Azure", fetch, "" if credential is not None else _AZURE_HINT)


def aws_auth(credentials: Any = None, *, region: str | None = None, service: str = "bedrock-mantle") -> httpx2.Auth:
    """Signs requests to AWS, body included, by Signature Version 4.

    `credentials` are those of botocore, or a session of botocore or boto3 that knows some; `None` takes the usual chain
    of variables, profiles and roles, or the Bedrock API key in `AWS_BEARER_TOKEN_BEDROCK` in place of a signature.
    `region` is otherwise `AWS_REGION`, `AWS_DEFAULT_REGION` or the profile's.
    Raises `ConfigError` where the extra `bedrock` is needed and not installed.
    """
    if credentials is None and (key := os.environ.get(_BEDROCK_KEY_VARIABLE, "").strip()):
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(f"{_BEDROCK_KEY_VARIABLE} holds characters that a header cannot carry")
        return FixedAuth("AWS", {"authorization": f"Bearer {key}"})
    require("botocore", "bedrock")
    if credentials is not None and not any(hasattr(credentials, name) for name in ("get_credentials", "access_key")):
        raise ConfigError("credentials must be botocore's own, or a session of botocore or boto3")
    return SignatureAuth(credentials, region, service)
