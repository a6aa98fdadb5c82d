"""pytest plugin: a private PostgreSQL server for the session, and a fresh database for each test.

The server runs as an ordinary user (PostgreSQL refuses to run as root), listens on loopback and on a
socket in its own folder, writes for good as in production, and ends with the session.
"""

from __future__ import annotations

import atexit
import functools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import psycopg
import pytest

from gridpost.stores.postgres.settings import PostgresSettings
from gridpost.transports.free_port import free_port

START_SECONDS = 240.0
USERS = ("postgres", "nobody")
"""As whom the server runs when the tests run as root."""


def server_programs() -> Path | None:
    """The folder of initdb and postgres: on the PATH, or where Debian puts them; the newest."""
    found = shutil.which("initdb")
    if found is not None and (Path(found).resolve().parent / "postgres").exists():
        return Path(found).resolve().parent
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda f: int(f.parent.name), reverse=True
    )
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


@dataclass(frozen=True)
class PostgresDatabase:
    """An empty database of a test."""

    server: PostgresServer
    name: str

    @property
    def dsn(self) -> str:
        """Over the socket, without a password."""
        return f"host={self.server.folder} port={self.server.port} user=gridpost dbname={self.name}"

    @property
    def tcp_dsn(self) -> str:
        """Over loopback, where the server asks for the password."""
        return f"postgresql://gridpost@127.0.0.1:{self.server.port}/{self.name}"

    def settings(self, **changes: object) -> PostgresSettings:
        return PostgresSettings(self.dsn, **changes)  # type: ignore[arg-type]

    def section(self, folder: Path) -> dict[str, str]:
        """`[postgres]` of a configuration, with the password in a file in `folder`."""
        secret = folder / "database-password"
        secret.write_text(self.server.password + "\n")
        secret.chmod(0o600)
        return {"dsn": self.tcp_dsn, "password_file": str(secret)}

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.dsn, autocommit=True)


class PostgresServer:
    """A server process with its data in `folder`."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self.folder = folder
        self.password = secrets.token_urlsafe(16)
        self.port = free_port()
        self._user = _ordinary_user()
        self._process: subprocess.Popen[bytes] | None = None
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        self._initialise()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the server does not run")
        return self._process.pid

    def start(self, *options: str) -> None:
        """`options` as of the command `postgres`, such as -c fsync=off."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._programs / "postgres",
                    *("-D", self.folder / "data", "-k", self.folder, "-p", str(self.port)),
                    *("-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"),
                    *("-c", "shared_buffers=32MB"),
                    *options,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **self._as_user(),  # type: ignore[call-overload]
            )
        until = monotonic() + START_SECONDS
        while True:
            try:
                psycopg.connect(self._admin(), connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                if self._process.poll() is not None or monotonic() > until:
                    raise RuntimeError((self.folder / "log").read_text()[-2000:]) from None
                sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends connections and stops in order; SIGQUIT is a crash of all its processes."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_SECONDS)
            self._process = None

    def restart(self, *options: str, how: signal.Signals = signal.SIGINT) -> None:
        self.stop(how)
        self.start(*options)

    def create_database(self) -> PostgresDatabase:
        name = f"test_{secrets.token_hex(6)}"
        with psycopg.connect(self._admin(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")
        return PostgresDatabase(self, name)

    def default_database(self) -> PostgresDatabase:
        """For tests that are content with a schema of their own."""
        return PostgresDatabase(self, "postgres")

    def drop_database(self, database: PostgresDatabase) -> None:
        with psycopg.connect(self._admin(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)")

    def _admin(self) -> str:
        return f"host={self.folder} port={self.port} user=gridpost dbname=postgres"

    def _initialise(self) -> None:
        secret = self.folder / "password"
        secret.write_text(self.password)
        secret.chmod(0o600)
        if self._user is not None:
            os.chown(secret, self._user.pw_uid, self._user.pw_gid)
        subprocess.run(
            [
                self._programs / "initdb",
                *("-D", self.folder / "data", "-U", "gridpost", "-E", "UTF8", "--locale=C"),
                *("--auth-local=trust", "--auth-host=scram-sha-256", f"--pwfile={secret}"),
                # Only the making of the server: what it writes later is flushed.
                "--no-sync",
            ],
            check=True,
            capture_output=True,
            cwd=self.folder,
            **self._as_user(),  # type: ignore[call-overload]
        )

    def _as_user(self) -> dict[str, object]:
        if self._user is None:
            return {}
        return {
            "user": self._user.pw_uid,
            "group": self._user.pw_gid,
            "extra_groups": [],
            "env": {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        }


@contextmanager
def postgres_server_process() -> Iterator[PostgresServer]:
    """A server of its own, for tests that stop or misconfigure it."""
    programs = server_programs()
    if programs is None:
        reason = "PostgreSQL's server programs (initdb, postgres) are not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    # Not a folder of pytest's: those belong to the user of the tests alone.
    with tempfile.TemporaryDirectory(prefix="gridpost-pg-", ignore_cleanup_errors=True) as folder:
        server = PostgresServer(programs, Path(folder))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@functools.cache
def server_of_this_process() -> PostgresServer:
    """For helpers that are no fixtures; ends with the process."""
    resources = ExitStack()
    server = resources.enter_context(postgres_server_process())
    atexit.register(resources.close)
    return server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with postgres_server_process() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    database = postgres_server.create_database()
    yield database
    postgres_server.drop_database(database)


@pytest.fixture(scope="module")
def own_postgres_server() -> Iterator[PostgresServer]:
    """For tests that stop it: they leave it running as they found it."""
    with postgres_server_process() as server:
        yield server


def _ordinary_user() -> pwd.struct_passwd | None:
    if os.geteuid() != 0:
        return None
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise RuntimeError(f"the tests run as root, and there is none of the users {', '.join(USERS)}")
