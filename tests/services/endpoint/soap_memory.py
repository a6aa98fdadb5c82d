"""Run as a process of its own: how much memory one large document takes on its way in and out.

Prints the growth of the resident memory at its peak, as a multiple of the document's size.
"""

from __future__ import annotations

import asyncio
import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from gridpost.assembly.spool import spooling
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.request_counts import RequestCounts
from gridpost.services.endpoint.soap_api import PATH, SoapApi
from gridpost.services.endpoint.soap_operations import SoapOperations
from gridpost.services.endpoint.users import User, Users
from gridpost.stores.sqlite import SqliteStore
from support.post import World
from support.soap import ALL, HASH, envelope, field, request, send_request

CHUNK = 48 * 1024


def megabytes(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"/proc/self/status has no {name}")


class Peak:
    def __enter__(self) -> Peak:
        Path("/proc/self/clear_refs").write_text("5")
        self._before = megabytes("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        self.grown = megabytes("VmHWM") - self._before


def sending(size: int) -> Iterator[bytes]:
    before, after = envelope("1.1", send_request(b"HERE")).split(b64encode(b"HERE").decode())
    yield before.encode()
    line = b64encode(bytes(range(256)) * (CHUNK // 256))
    for _ in range(size // CHUNK):
        yield line
    yield after.encode()


async def call(app: SoapApi, chunks: Iterator[bytes]) -> int:
    """How many bytes the answer had; it is not kept."""
    received, ok = 0, False

    async def receive() -> dict[str, Any]:
        chunk = next(chunks, None)
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    async def send(message: Any) -> None:
        nonlocal received, ok
        if message["type"] == "http.response.start":
            ok = message["status"] == 200
        received += len(message.get("body", b""))

    headers = [
        (b"content-type", b"text/xml"),
        (b"authorization", b"Basic " + b64encode(b"app:secret")),
        (b"host", b"endpoint"),
    ]
    scope = {
        "type": "http",
        "asgi": {"spec_version": "2.4"},
        "method": "POST",
        "path": PATH,
        "query_string": b"",
        "headers": headers,
    }
    await app(scope, receive, send)
    assert ok
    return received


async def main(size: int, folder: Path) -> None:
    size -= size % CHUNK
    world = World(settings=EndpointSettings(max_content=size))
    apis = []
    for code in ("E1", "E2"):
        one = world[code]
        one.context.store = SqliteStore.open(folder / code, code)
        users = Users([User("app", HASH, send=ALL, receive=ALL)])
        apis.append(
            SoapApi(
                one.context,
                users,
                SoapOperations(one.context, users, one.submission, one.handover, one.enquiry),
                lambda scope: (),
                spooling(folder / "spool"),
                RequestCounts(CollectorRegistry()),
            )
        )
    sender, recipient = apis
    await call(sender, sending(CHUNK))
    await world.carry()
    body = request("ReceiveMessage", field("messageType", "A01"), field("downloadMessage", "true"))
    fetch = [envelope("1.1", body).encode()]
    await call(recipient, iter(fetch))
    first = await world["E2"].handover.receive("A01")
    assert first.entry is not None
    await world["E2"].handover.confirm(first.entry.message_id)
    with Peak() as sent:
        await call(sender, sending(size))
    await world.carry()
    with Peak() as fetched:
        assert await call(recipient, iter(fetch)) > size * 4 // 3
    for code in ("E1", "E2"):
        await world[code].context.store.close()
    scale = size / 1024 / 1024
    print(json.dumps({"in": sent.grown / scale, "out": fetched.grown / scale}))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2])))
