"""Azure: its key, and what signs where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from treadle.providers._endpoint import Key

if TYPE_CHECKING:
    import httpx2


def _sign() -> httpx2.Auth:
    from treadle.providers.auth import azure_auth

    return azure_auth()


AZURE_KEY = Key(variables=("AZURE_OPENAI_API_KEY",), required=True, header="api-key", prefix="", sign=_sign)
