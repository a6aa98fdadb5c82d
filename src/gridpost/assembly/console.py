"""A console from the configuration of its component: its port, its credentials, its desks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.types import ASGIApp

from gridpost import __version__
from gridpost.assembly.console_configuration import ConsoleSection
from gridpost.assembly.directory_configuration import read_certificates
from gridpost.assembly.file_watch import watch_file
from gridpost.console.frame import Frame
from gridpost.console.settings import ConsoleSettings, Whose
from gridpost.core.https import TlsCredentials
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys import pkcs8
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.transports.https import ClientCertificate, Limits, ServerTls, serve

_FORM = 1024 * 1024
"""What a form may have beside a document."""


def whose(code: str, kind: str) -> Whose:
    return Whose(code, kind, __version__)


def settings_of(section: ConsoleSection | None) -> ConsoleSettings:
    """A table that was taken out of a running component's file lets nobody in."""
    return ConsoleSettings() if section is None else section.settings()


@asynccontextmanager
async def console_port(
    section: ConsoleSection,
    app: ASGIApp,
    own: Callable[[], TlsCredentials],
    max_document: int = 0,
) -> AsyncIterator[int]:
    """Serves until the block ends. `own` is what the component shows of itself otherwise."""
    credentials = own
    if section.certificate is not None and section.key is not None:
        credentials = FileCredentials(section.certificate, section.key)
    tls = ServerTls(credentials, ClientCertificate.NONE)
    limits = Limits(max_connections=200, max_body=max_document + _FORM)
    async with serve(app, section.host, section.port, tls, limits) as server:
        yield server.port


@asynccontextmanager
async def reloaded_console(
    section: ConsoleSection,
    frame: Frame,
    app: ASGIApp,
    own: Callable[[], TlsCredentials],
    file: Path | None,
    read: Callable[[Path], ConsoleSection | None],
) -> AsyncIterator[int]:
    """`read` gives the section of a changed file, of a component that takes nothing else over."""

    async def reload(changed: Path) -> None:
        frame.reconfigure(settings_of(read(changed)))

    async with console_port(section, app, own) as port:
        if file is None:
            yield port
            return
        watching = asyncio.create_task(watch_file(file, lambda: reload(file)))
        try:
            yield port
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching


class FileCredentials:
    """Read again when the files have changed: a renewed certificate needs no restart."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._read: tuple[object, TlsCredentials] | None = None

    def __call__(self) -> TlsCredentials:
        state = [self._state(file) for file in (self._certificate, self._key)]
        if self._read is None or self._read[0] != state:
            try:
                octets = self._key.read_bytes()
            except OSError as error:
                raise Refusal(Rule.USAGE, f"{self._key} cannot be read: {error.strerror}") from None
            private = pkcs8.read(octets, None, str(self._key))
            chain = read_certificates(self._certificate)
            self._read = (state, TlsCredentials(chain, to_pkcs8(private), ()))
        return self._read[1]

    def _state(self, file: Path) -> object:
        try:
            status = file.stat()
        except OSError:
            # Half-way through a renewal: what was read last is good enough for now.
            return None if self._read is None else self._read[0]
        return status.st_mtime_ns, status.st_size, status.st_ino
