"""What a cloud has beside its models: a token server, keys and people's credentials, all on loopback."""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from support.loopback import Reply

if TYPE_CHECKING:
    from support.loopback import Seen

# The access key in AWS's own examples.
ACCESS_KEY = "AKIDEXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


def document(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply((json.dumps(value).encode(),), status, "application/json", headers, whole=True)


def token(text: str, seconds: int = 3600) -> Reply:
    """A token server's answer, in the form that Google and Microsoft share."""
    return document({"access_token": text, "expires_in": seconds, "token_type": "Bearer"})


def form(seen: Seen) -> dict[str, str]:
    """The fields that a token server was sent."""
    return dict(parse_qsl(seen.raw.decode()))


@functools.cache
def rsa_key() -> str:
    """A private key, made once: that takes a tenth of a second."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def service_account(origin: str) -> dict[str, str]:
    """A key file of Google's whose tokens come from `origin`."""
    return {
        "type": "service_account",
        "project_id": "weaving",
        "private_key_id": "key-1",
        "private_key": rsa_key(),
        "client_email": "treadle@weaving.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": f"{origin}/token",
    }


def signature_parts(authorization: str) -> dict[str, str]:
    """Credential, SignedHeaders and Signature of an AWS authorization header."""
    _, _, rest = authorization.partition(" ")
    return dict(part.split("=", 1) for part in rest.split(", "))


def aws_signature(
    method: str, target: str, headers: dict[str, str], body: bytes, *, signed: str, scope: str, secret: str
) -> str:
    """Signature Version 4 after AWS's documentation: what a server computes to check a request."""
    parts = urlsplit(target)
    query = "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(parse_qsl(parts.query, keep_blank_values=True))
    )
    lines = [f"{name}:{' '.join(headers[name].split())}\n" for name in signed.split(";")]
    canonical = "\n".join([
        method, quote(parts.path, safe="/-_.~"), query, "".join(lines), signed, hashlib.sha256(body).hexdigest()
    ])  # fmt: skip
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashed])
    key = f"AWS4{secret}".encode()
    for step in (*scope.split("/"), text):
        key = hmac.digest(key, step.encode(), "sha256")
    return key.hex()


def is_signed(seen: Seen, secret: str = SECRET_KEY) -> bool:
    """Whether the signature of a POST fits the body that came with it."""
    parts = signature_parts(seen.headers["authorization"])
    _, _, scope = parts["Credential"].partition("/")
    expected = aws_signature(
        "POST", seen.path, seen.headers, seen.raw, signed=parts["SignedHeaders"], scope=scope, secret=secret
    )
    return hmac.compare_digest(expected, parts["Signature"])
