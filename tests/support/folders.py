"""Endpoint processes with shared folders, and the applications that use them."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from support.network import Network, network

SCRIPT = Path(__file__).with_name("folder_application.py")
CHANNEL = """[folders]
out = "{code}-files/OUT"
out_error = "{code}-files/OUT_ERROR"
out_log = "{code}-files/OUT_LOG"
retry = "300ms"
{more}
[folders.in]
folder = "{code}-files/IN"
extension = "dat"
[folders.types."F-A"]
folder = "{code}-files/IN-A"
extension = "aaa"
[folders.types."F-B"]
folder = "{code}-files/IN-B"
[users.folder]
channels = ["folder"]
send = ["F*"]
[[bindings]]
message_type = "F*"
channel = "folder"
"""


class Folders:
    """The folders of one endpoint."""

    def __init__(self, net: Network, code: str) -> None:
        self.net = net
        self.code = code
        self.base = net.folder / f"{code}-files"
        self.out, self.errors = self.base / "OUT", self.base / "OUT_ERROR"
        self.logs, self.into = self.base / "OUT_LOG", self.base / "IN"
        for name in ("OUT", "OUT_ERROR", "OUT_LOG", "IN", "IN-A", "IN-B"):
            (self.base / name).mkdir(parents=True, exist_ok=True)

    async def send(self, *names_and_contents: str) -> None:
        await _script("send", str(self.out), *names_and_contents)

    async def many(self, prefix: str, count: int) -> None:
        await _script("many", str(self.out), prefix, str(count))

    async def receive(self, count: int, folder: str = "IN", seconds: float = 60) -> dict[str, str]:
        out = await _script("receive", str(self.base / folder), str(count), str(seconds))
        found: dict[str, str] = json.loads(out)
        assert len(found) >= count, found
        return found

    async def health(self) -> dict[str, Any]:
        port = self.net.ports[f"{self.code} operations"]
        async with httpx.AsyncClient(timeout=60) as client:
            answer = await client.get(f"http://127.0.0.1:{port}/health")
        found: dict[str, Any] = answer.json()
        return found

    async def log_of(self, name: str, *, until: str, seconds: float = 60) -> list[list[str]]:
        """The lines of a log, once one has this state."""
        async with asyncio.timeout(seconds):
            while True:
                file = self.logs / name
                text = file.read_text(encoding="utf-8") if file.exists() else ""
                lines = [line.split("\t") for line in text.splitlines()]
                if any(line[1] == until for line in lines):
                    return lines
                await asyncio.sleep(0.02)


async def gone(*paths: Path, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while any(path.exists() for path in paths):
            await asyncio.sleep(0.02)


async def there(*paths: Path, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not all(path.exists() for path in paths):
            await asyncio.sleep(0.02)


@asynccontextmanager
async def folder_network(
    folder: Path, more: str = "", after: Callable[[str], str] = lambda code: ""
) -> AsyncIterator[Network]:
    """B1, and E1 and E2 with shared folders for message-types F*."""
    async with network(folder) as found:
        await found.broker("B1")
        await found.start("B1")
        for code in ("E1", "E2"):
            Folders(found, code)
            await found.endpoint(
                code, "INDIRECT:B1", more=CHANNEL.format(code=code, more=more) + after(code)
            )
        await found.start("E1", "E2")
        await found.known("E1", "E2")
        await found.known("E2", "E1")
        yield found


async def _script(*arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), *arguments, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()
