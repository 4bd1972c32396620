"""`local:/path/to/model.gguf`: a model on this machine, in a llama.cpp server that lives as long as it is used.

The server is a child process (extra `local`, package `xllamacpp`): it stops cleanly, its crash is an error and not
ours, and it waits without burning a processor. It listens on a free loopback port and takes a key that only we know.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from treadle.errors import ConfigError, ModelConnectionError, StreamIdleError
from treadle.model import Capabilities
from treadle.providers._connection import check_allowed
from treadle.providers._local_server import ServerOptions
from treadle.providers.openai_chat._dialects import DIALECTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from treadle.events import ModelEvent
    from treadle.model import ModelRequest

LOAD_SECONDS = 600.0
POLL_SECONDS = 0.05
STOP_SECONDS = 5.0
_MAX_LOG = 64 * 1024


class LocalModel:
    """A GGUF file as a `Model`. The first request starts the server; `aclose()` stops it, and so does our end.

    `context_tokens` is the room for prompt and answer. `chat_template` is a Jinja file to use instead of the model's
    own. `on_load` is called with the seconds gone, now and then while the model loads. Requests are answered one
    after the other. The first request raises `ConfigError` for a missing file or package, and for a file that
    llama.cpp cannot load.
    """

    provider = "local"
    capabilities: Capabilities = Capabilities(tools=True, reasoning=True, output_schema=True)

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        chat_template: str | os.PathLike[str] | None = None,
        context_tokens: int = 16_384,
        idle_timeout_seconds: float = 600.0,
        on_load: Callable[[float], object] | None = None,
    ) -> None:
        self.name: str = os.fspath(path)
        if not self.name:
            raise ConfigError("a local model is a file: write local:/path/to/model.gguf")
        self._template = chat_template
        self._context_tokens = context_tokens
        self._idle_timeout_seconds = idle_timeout_seconds
        self._on_load = on_load or (lambda _seconds: None)
        self._server: _Server | None = None
        self._lock = threading.Lock()  # runs on several event loops may share one server

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelEvent]:
        """One answer of the server, which is started first where it does not run."""
        import httpx2

        from treadle.providers.openai_chat import OpenAIChatModel

        check_allowed()
        server = self._running()
        address = await server.ready(self._on_load)
        # A client of our own: a proxy of the environment has no business here, and no certificate is looked at.
        timeout = httpx2.Timeout(None, connect=10.0)
        async with httpx2.AsyncClient(trust_env=False, verify=False, timeout=timeout) as client:
            model = OpenAIChatModel(
                self.name,
                provider=self.provider,
                base_url=f"{address}/v1",
                api_key=server.key,
                client=client,
                idle_timeout_seconds=self._idle_timeout_seconds,
                dialect=DIALECTS["llamacpp"],
            )
            try:
                async with contextlib.aclosing(model.stream(request)) as events:
                    async for event in events:
                        yield event
            except ModelConnectionError as error:
                if not isinstance(error, StreamIdleError):  # it is gone or going, though the system may not say so yet
                    self._drop(server)
                raise

    async def aclose(self) -> None:
        """Stops the server. A later request starts a new one."""
        self._drop(self._server)

    def _drop(self, server: _Server | None) -> None:
        with self._lock:
            if self._server is server:
                self._server = None
        if server is not None:
            server.stop()

    def _running(self) -> _Server:
        with self._lock:
            if self._server is None or not self._server.alive():
                self._server = _Server(self.name, self._context_tokens, self._template)
            return self._server


class _Server:
    """One child process with one model. `stop` ends it, also when this object or the interpreter goes."""

    def __init__(self, path: str, context_tokens: int, template: str | os.PathLike[str] | None) -> None:
        file = Path(path).expanduser()
        self.key = secrets.token_urlsafe(24)
        self._path = path
        self._address: str | None = None
        options = ServerOptions(_checked(file), path, self.key, context_tokens, _read_template(template))
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError('local: models need the extra "local": pip install "treadle[local]"')
        self._process, self._log = _start(options)
        self.stop = weakref.finalize(self, _stop, self._process, self._log)

    def alive(self) -> bool:
        return self.stop.alive and self._process.poll() is None

    async def ready(self, on_load: Callable[[float], object]) -> str:
        """The address, as soon as the model is loaded."""
        started = time.monotonic()
        while (address := self._told_address()) is None:
            seconds = time.monotonic() - started
            if not self.alive():
                raise ConfigError(f"llama.cpp cannot serve {self._path}: {_last_words(self._log)}")
            if seconds > LOAD_SECONDS:
                self.stop()
                raise ModelConnectionError(f"{self._path} was not loaded within {LOAD_SECONDS:.0f} s", provider="local")
            on_load(seconds)
            await asyncio.sleep(POLL_SECONDS)
        return address

    def _told_address(self) -> str | None:
        if self._address is None and self.alive() and self._process.stdout is not None:
            line = self._process.stdout.read(256)  # does not wait: None or nothing where nothing was said yet
            self._address = line.decode().strip() if line else None
        return self._address


def _start(options: ServerOptions) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "treadle.providers._local_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        bufsize=0,
        # Threads that spin while they wait would take the processor from whoever needs it.
        env={**os.environ, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"},
        start_new_session=True,  # Ctrl-C in a terminal is for us alone
    )
    assert process.stdin is not None
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(msgspec.json.encode(options) + b"\n")
    return process, log


def _stop(process: subprocess.Popen[bytes], log: IO[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout, log):
        if stream is not None:
            stream.close()


def _checked(file: Path) -> str:
    if not file.is_file():
        raise ConfigError(f"there is no model file {file}: write local:/path/to/model.gguf")
    return str(file.resolve())


def _read_template(template: str | os.PathLike[str] | None) -> str | None:
    try:
        return None if template is None else Path(template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the chat template {os.fspath(template or '')} cannot be read: {error}") from None


def _last_words(log: IO[bytes]) -> str:
    """The first error in llama.cpp's log, or else its last line."""
    log.seek(0)
    lines = log.read(_MAX_LOG).decode(errors="replace").splitlines()
    errors = [line.partition(" E ")[2] for line in lines if " E " in line]
    return (errors or [line for line in reversed(lines) if line.strip()] or ["it ended without a word"])[0].strip()
