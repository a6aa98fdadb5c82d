"""An FTP and an SFTP server on loopback, each with one user and a folder."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh

from gridpost.transports.mailboxes import FtpBox, SftpBox

USER, PASSWORD, LIMIT = "bus", "secret", 1024 * 1024


def _make(folder: Path) -> None:
    folder.mkdir()


@asynccontextmanager
async def ftp_server(folder: Path) -> AsyncIterator[FtpBox]:
    _make(folder)
    with warnings.catch_warnings():
        # It stands on modules that Python 3.12 has no more; the lock file brings their successors.
        warnings.simplefilter("ignore", DeprecationWarning)
        from pyftpdlib.authorizers import DummyAuthorizer
        from pyftpdlib.handlers import FTPHandler
        from pyftpdlib.servers import FTPServer
    authorizer = DummyAuthorizer()
    authorizer.add_user(USER, PASSWORD, str(folder), perm="elradfmwMT")
    handler = type("Handler", (FTPHandler,), {"authorizer": authorizer})
    server = FTPServer(("127.0.0.1", 0), handler)
    port = server.socket.getsockname()[1]
    ending = threading.Event()

    def serve() -> None:
        while not ending.is_set():
            server.serve_forever(timeout=0.1, blocking=False)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield FtpBox(f"ftp://{USER}@127.0.0.1:{port}/", PASSWORD, LIMIT)
    finally:
        ending.set()
        await asyncio.to_thread(thread.join)
        server.close_all()


class _Server(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return (username, password) == (USER, PASSWORD)


@asynccontextmanager
async def sftp_server(folder: Path) -> AsyncIterator[SftpBox]:
    _make(folder)
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.create_server(
        _Server,
        "127.0.0.1",
        0,
        server_host_keys=[key],
        sftp_factory=lambda channel: asyncssh.SFTPServer(channel, chroot=str(folder).encode()),
    )
    port = server.get_port()
    known = folder.parent / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {key.export_public_key().decode()}")
    try:
        yield SftpBox(f"sftp://{USER}@127.0.0.1:{port}/", PASSWORD, LIMIT, str(known))
    finally:
        server.close()
        await server.wait_closed()
