"""H with connections kept alive, for information: what the bare reader gains by reusing them."""

from __future__ import annotations

from client_httpx2 import Httpx2Client


def connect(base_url: str) -> Httpx2Client:
    return Httpx2Client(base_url, keep_alive=True)
