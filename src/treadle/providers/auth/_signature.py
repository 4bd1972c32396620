"""Signatures of AWS, by botocore: each over the whole request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from treadle._threads import run_in_thread
from treadle.errors import ConfigError
from treadle.providers.auth._failures import token_error
from treadle.providers.auth._one_fetch import OneFetch
from treadle.providers.auth._tokens import TOKEN_SECONDS, AsyncAuth

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or AWS_BEARER_TOKEN_BEDROCK"


class SignatureAuth(AsyncAuth):
    """Signature Version 4. `given` are credentials, or a session that knows some; `None` is the usual session."""

    requires_request_body = True

    def __init__(self, given: Any, region: str | None, service: str) -> None:
        super().__init__("AWS")
        self._given, self._service = given, service
        self._region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self._credentials: Any = None
        self._fetching: OneFetch[Any] = OneFetch(lambda _: None)

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        await request.aread()
        keys = await self._keys()
        request.headers.update(self._signature(request, keys))
        yield request

    async def _keys(self) -> Any:
        """The keys to sign with. Those of a role end, and botocore fetches others."""
        found = self._credentials
        try:
            if found is None or (hasattr(found, "refresh_needed") and found.refresh_needed()):
                return await self._fetching.outcome(self._fetch, TOKEN_SECONDS)
            return _frozen(found)
        except ConfigError:
            raise
        except Exception as error:  # noqa: BLE001 - made one of ours
            raise token_error(self.cloud, error, "" if self._given is not None else _HINT) from None

    async def _fetch(self) -> Any:
        return await run_in_thread(self._find)

    def _find(self) -> Any:
        """Reads files and may ask servers. Loads what signing needs as well, which takes a while."""
        import botocore.auth
        import botocore.session

        given = self._given if self._given is not None else botocore.session.get_session()
        self._region = self._region or _region_of(given)
        found = given.get_credentials() if hasattr(given, "get_credentials") else given
        if found is None:
            raise LookupError("there are no credentials")
        keys = _frozen(found)
        self._credentials = found
        return keys

    def _signature(self, request: httpx2.Request, keys: Any) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest

        # Of the headers only these and the host are signed: a proxy may change the others.
        signed = {"content-type": request.headers["content-type"]} if "content-type" in request.headers else {}
        copy = AWSRequest(method=request.method, url=str(request.url), headers=dict(signed), data=request.content)
        SigV4Auth(keys, self._service, self._region).add_auth(copy)
        return {name: value for name, value in copy.headers.items() if name not in signed}


def _frozen(credentials: Any) -> Any:
    return credentials.get_frozen_credentials() if hasattr(credentials, "get_frozen_credentials") else credentials


def _region_of(session: Any) -> str:
    """The region of the profile; botocore's sessions tell it in another way than those of boto3."""
    told = getattr(session, "get_config_variable", None)
    region = told("region") if told is not None else getattr(session, "region_name", None)
    if not region:
        raise ConfigError("there is no AWS region: set AWS_REGION or pass region")
    return str(region)
