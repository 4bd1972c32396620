"""Google Cloud: where models run, and what signs requests to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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


def sign_for_google() -> httpx2.Auth:
    """What signs with the Application Default Credentials. Loads the HTTP client."""
    from treadle.providers.auth import google_auth

    return google_auth()
