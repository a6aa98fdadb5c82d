"""Places for files that other systems share with us: a folder, an FTP or an SFTP server.

A file is there as a whole or not at all: it is written under a name that begins with a dot and then
renamed. What could not be used is renamed to `NAME.error`, and left alone from then on.
"""

from __future__ import annotations

import asyncio
import ftplib
import io
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from gridpost.core.refusal import Refusal, Rule

T = TypeVar("T")
_ERROR = ".error"
_SECONDS = 30


class Mailbox(Protocol):
    async def put(self, name: str, data: bytes) -> None: ...

    async def names(self) -> list[str]:
        """Of files that are complete, in order."""
        ...

    async def get(self, name: str) -> bytes: ...

    async def remove(self, name: str) -> None: ...

    async def set_aside(self, name: str) -> None: ...


def wanted(name: str) -> bool:
    return not name.startswith(".") and not name.endswith(_ERROR)


class FolderBox:
    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    async def put(self, name: str, data: bytes) -> None:
        await self._do(lambda: self._write(name, data))

    def _write(self, name: str, data: bytes) -> None:
        temporary = self._folder / f".{name}.part"
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self._folder / name)

    async def names(self) -> list[str]:
        return await self._do(
            lambda: sorted(f.name for f in self._folder.iterdir() if f.is_file() and wanted(f.name))
        )

    async def get(self, name: str) -> bytes:
        return await self._do(lambda: _bounded((self._folder / name).open("rb"), self._limit))

    async def remove(self, name: str) -> None:
        await self._do((self._folder / name).unlink)

    async def set_aside(self, name: str) -> None:
        await self._do(lambda: (self._folder / name).rename(self._folder / f"{name}{_ERROR}"))

    async def remove_before(self, moment: float) -> int:
        """Files that were last written before this time, in seconds since 1970; how many."""
        return await self._do(lambda: self._remove_before(moment))

    def _remove_before(self, moment: float) -> int:
        old = [f for f in self._folder.iterdir() if f.is_file() and f.stat().st_mtime < moment]
        for file in old:
            file.unlink(missing_ok=True)
        return len(old)

    async def _do(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise Refusal(Rule.ADAPTER, f"{self._folder}: {error.strerror or error}") from None


class FtpBox:
    """`ftp://` or `ftps://` (TLS by AUTH, RFC 4217)."""

    def __init__(self, url: str, password: str, limit: int) -> None:
        parts = urlsplit(url)
        self._tls = parts.scheme == "ftps"
        self._host, self._port = parts.hostname or "", parts.port or 21
        self._user, self._password = unquote(parts.username or "anonymous"), password
        self._folder = unquote(parts.path) or "/"
        self._limit = limit

    async def put(self, name: str, data: bytes) -> None:
        def work(ftp: ftplib.FTP) -> None:
            ftp.storbinary(f"STOR .{name}.part", io.BytesIO(data))
            ftp.rename(f".{name}.part", name)

        await self._do(work)

    async def names(self) -> list[str]:
        def work(ftp: ftplib.FTP) -> list[str]:
            return sorted(n for n, facts in ftp.mlsd() if facts["type"] == "file" and wanted(n))

        return await self._do(work)

    async def get(self, name: str) -> bytes:
        def work(ftp: ftplib.FTP) -> bytes:
            found = bytearray()

            def take(part: bytes) -> None:
                found.extend(part)
                if len(found) > self._limit:
                    raise _too_large(self._limit)

            ftp.retrbinary(f"RETR {name}", take)
            return bytes(found)

        return await self._do(work)

    async def remove(self, name: str) -> None:
        await self._do(lambda ftp: ftp.delete(name))

    async def set_aside(self, name: str) -> None:
        await self._do(lambda ftp: ftp.rename(name, f"{name}{_ERROR}"))

    async def _do(self, work: Callable[[ftplib.FTP], T]) -> T:
        def run() -> T:
            kind = ftplib.FTP_TLS if self._tls else ftplib.FTP
            with kind(timeout=_SECONDS) as ftp:
                ftp.connect(self._host, self._port)
                ftp.login(self._user, self._password)
                if isinstance(ftp, ftplib.FTP_TLS):
                    ftp.prot_p()
                ftp.cwd(self._folder)
                return work(ftp)

        try:
            return await asyncio.to_thread(run)
        except ftplib.all_errors as error:
            raise Refusal(Rule.ADAPTER, f"ftp://{self._host}: {error}") from None


class SftpBox:
    """The server's key must be known: `known_hosts` is a file as OpenSSH has it."""

    def __init__(
        self, url: str, password: str, limit: int, known_hosts: str, key: str = ""
    ) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 22
        self._user, self._password = unquote(parts.username or ""), password
        self._folder = unquote(parts.path) or "."
        self._limit, self._known_hosts, self._key = limit, known_hosts, key

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Any]:
        try:
            import asyncssh
        except ImportError:
            raise Refusal(Rule.USAGE, "sftp needs 'pip install gridpost[bus]'") from None
        try:
            async with (
                asyncio.timeout(_SECONDS),
                asyncssh.connect(
                    self._host,
                    self._port,
                    username=self._user,
                    password=self._password or None,
                    client_keys=[self._key] if self._key else [],
                    known_hosts=self._known_hosts,
                    config=[],
                ) as connection,
                connection.start_sftp_client() as sftp,
            ):
                await sftp.chdir(self._folder)
                yield sftp
        except (OSError, asyncssh.Error, TimeoutError) as error:
            raise Refusal(Rule.ADAPTER, f"sftp://{self._host}: {error}") from None

    async def put(self, name: str, data: bytes) -> None:
        async with self._client() as sftp:
            async with sftp.open(f".{name}.part", "wb") as file:
                await file.write(data)
            await sftp.posix_rename(f".{name}.part", name)

    async def names(self) -> list[str]:
        async with self._client() as sftp:
            return sorted(n for n in await sftp.listdir(".") if wanted(n))

    async def get(self, name: str) -> bytes:
        async with self._client() as sftp, sftp.open(name, "rb") as file:
            data: bytes = await file.read(self._limit + 1)
            if len(data) > self._limit:
                raise _too_large(self._limit)
            return data

    async def remove(self, name: str) -> None:
        async with self._client() as sftp:
            await sftp.remove(name)

    async def set_aside(self, name: str) -> None:
        async with self._client() as sftp:
            await sftp.posix_rename(name, f"{name}{_ERROR}")


def _bounded(file: io.BufferedReader, limit: int) -> bytes:
    with file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise _too_large(limit)
    return data


def _too_large(limit: int) -> Refusal:
    return Refusal(Rule.LIMIT_EXCEEDED, f"a file has at most {limit} bytes")
