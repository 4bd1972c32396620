"""Google Cloud: where models run, and what signs requests to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from treadle.providers._extras import require

if TYPE_CHECKING:
    import httpx2


def vertex_address(location: str) -> str:
    """The address of the models at a location: everywhere, on a continent (`us`, `eu`) or in a region."""
    if location == "global":
        return "https://aiplatform.googleapis.com"
    if location in ("us", "eu"):
        return f"https://aiplatform.{location}.rep.googleapis.com"
    return f"https://{location}-aiplatform.googleapis.com"


def first_set(*variables: str) -> str | None:
    """The first of the variables that holds something."""
    return next((value for name in variables if (value := os.environ.get(name, "").strip())), None)


def check_sign_in(api_key: str | None, auth: httpx2.Auth | None, client: httpx2.AsyncClient | None) -> None:
    """Raises `ConfigError` where nothing else signs, and the library that does it is not installed."""
    if api_key is None and auth is None and getattr(client, "auth", None) is None:
        require("google.auth", "vertex")


def sign_for_google() -> httpx2.Auth:
    """What signs with the Application Default Credentials. Loads the HTTP client."""
    from treadle.providers.auth import google_auth

    return google_auth()
