"""Processes of a bus with one store, for tests that kill them."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from support.bus_site import CONTEXT
from support.child import environment
from support.postgres import PostgresDatabase
from support.rabbitmq import EDGE, Rabbit
from support.waiting import eventually

COUNTS = '<c:Counts xmlns:c="urn:counts"/>'
"""The payload of the noun that the processes serve: see `support.bus_child`."""


def database(
    request: pytest.FixtureRequest, store: str, folder: Path
) -> tuple[PostgresDatabase | None, str]:
    """The database of a test, and the section of the configuration that names it."""
    if store == "sqlite":
        return None, ""
    postgres: PostgresDatabase = request.getfixturevalue("postgres")
    words = [f'{name} = "{value}"' for name, value in postgres.section(folder).items()]
    return postgres, "\n".join(["[postgres]", *words, ""])


def write(rabbit: Rabbit, folder: Path, virtual_host: str, sections: str) -> Path:
    """`sections`: with postgres among them that is the store, else SQLite."""
    certificate = rabbit.certificate(EDGE)
    file = folder / "bus.toml"
    file.write_text(
        f"""component = "bus"
code = "MDM"
home = "home"
contexts = ["{CONTEXT}"]
store = "{"postgres" if "[postgres]" in sections else "sqlite"}"
[rabbitmq]
urls = ["{rabbit.url}"]
virtual_host = "{virtual_host}"
roots = "{certificate / "root.pem"}"
certificate = "{certificate / "chain.pem"}"
key = "{certificate / "key.pem"}"
[limits]
deliveries = 1000
[calling]
retries = ["1s", "1s", "5s", "30s"]
[[slas]]
within = "10m"
{sections}"""
    )
    return file


class Buses:
    """Processes of buses, children of one that has everything loaded."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "support.bus_child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self._alive: set[int] = set()

    async def _ask(self, *words: object) -> int:
        """In a thread: connections of this loop must not fall silent, nor services in it."""

        def ask() -> int:
            assert self._parent.stdin is not None
            assert self._parent.stdout is not None
            print(*words, file=self._parent.stdin, flush=True)
            return int(self._parent.stdout.readline())

        return await asyncio.to_thread(ask)

    async def start(self, file: Path, stop_at: str) -> int:
        pid = await self._ask("start", file, stop_at.replace(" ", "_"))
        self._alive.add(pid)
        await eventually(lambda: (file.parent / f"serving-{pid}").exists(), 300)
        return pid

    async def wait(self, pid: int) -> int:
        code = await self._ask("wait", pid)
        self._alive.discard(pid)
        return code

    async def kill(self, pid: int) -> int:
        code = await self._ask("kill", pid)
        self._alive.discard(pid)
        return code

    def close(self) -> None:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.close()
        for pid in self._alive:  # a test that failed left them
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._parent.wait(60)
        self._parent.stdout.close()


def effects(folder: Path, postgres: PostgresDatabase | None) -> list[tuple[object, ...]]:
    query = "SELECT message_id FROM effect"
    if postgres is not None:
        with postgres.connect() as connection:
            connection.execute("SET search_path TO gridpost")
            return connection.execute(query).fetchall()
    with closing(sqlite3.connect(folder / "home" / "store" / "gridpost.sqlite3")) as store:
        return store.execute(query).fetchall()
