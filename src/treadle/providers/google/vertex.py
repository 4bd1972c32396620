"""Gemini on Google Cloud (Vertex AI): by project and token, or by an API key alone (express mode)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.errors import ConfigError
from treadle.providers._vertex import check_sign_in, first_set
from treadle.providers.google import GoogleModel

if TYPE_CHECKING:
    import httpx2

_EXPRESS = "https://aiplatform.googleapis.com"


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
) -> GoogleModel:
    """A Gemini model on Google Cloud.

    `project` is otherwise `GOOGLE_CLOUD_PROJECT`, `location` is `GOOGLE_CLOUD_LOCATION` or `global`. Without `auth`
    requests are signed by `google_auth()`. An `api_key`, or `GOOGLE_API_KEY` where there is no project, asks in express
    mode, without project and location.
    """
    if project is None and api_key is None:
        project = first_set("GOOGLE_CLOUD_PROJECT")
    if project is None:
        api_key = api_key or (None if auth is not None else first_set("GOOGLE_API_KEY"))
        if api_key is None:
            raise ConfigError(
                "google-vertex models need a Google Cloud project: set GOOGLE_CLOUD_PROJECT or pass project "
                "(express mode needs only GOOGLE_API_KEY or api_key)"
            )
        base_url = f"{(base_url or _EXPRESS).rstrip('/')}/v1beta1/publishers/google"
    else:
        check_sign_in(api_key, auth, client)
    return GoogleModel(
        name,
        base_url=base_url,
        api_key=api_key,
        project=project,
        location=location or first_set("GOOGLE_CLOUD_LOCATION") or "global",
        auth=auth,
        client=client,
        idle_timeout_seconds=idle_timeout_seconds,
    )
