"""A bus that demands ReplayDetection of everybody: REST clients can give it, adapters need not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from gridpost.assembly.clock import SystemClock
from gridpost.core.bus import BusUnit
from gridpost.envelope import Guard, RequestMessage, Sender, complete, decode, encode
from gridpost.services.bus.door import WebDoor
from gridpost.services.bus.handlers import Answer
from gridpost.services.bus.metrics import BusMetrics
from gridpost.services.bus.rest_api import RestApi
from gridpost.services.bus.service import BusService
from gridpost.services.bus.settings import BusSettings
from gridpost.services.bus.sources import Source, SourceReader
from gridpost.stores.sqlite.bus import SqliteBusLedger
from gridpost.transports.mailboxes import FolderBox

CONTEXT = "TESTING"
CALLS: list[str] = []
NOTE = '<n:Notes xmlns:n="urn:n">{}</n:Notes>'


@pytest_asyncio.fixture
async def service(tmp_path: Path) -> AsyncIterator[BusService]:
    contexts = frozenset({CONTEXT})
    ledger = SqliteBusLedger.open(tmp_path / "store", "MDM")
    found = BusService(
        BusSettings("MDM", contexts, Guard(contexts, replay_required=True)),
        ledger,
        SystemClock(),
        BusMetrics(CollectorRegistry()),
    )

    @found.handles("create", "Notes")
    def create(request: RequestMessage, unit: BusUnit) -> object:
        CALLS.append(request.payload.content[0].text)
        return Answer(complete(), changed=False)

    CALLS.clear()
    yield found
    await ledger.close()


async def test_rest_clients_guard_against_replay_with_two_headers(service: BusService) -> None:
    app = Starlette(routes=RestApi(WebDoor(service), service.settings).routes())
    now = datetime.now(UTC)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url=f"http://bus/bus/{CONTEXT}/rest"
    ) as web:

        async def post(text: str, **said: str) -> tuple[int, set[str]]:
            headers = {name.replace("_", "-"): value for name, value in said.items()}
            answer = await web.post("/Notes", content=NOTE.format(text), headers=headers)
            return answer.status_code, set(decode(answer.content).reply.codes)

        nonce, created = str(uuid4()), now.isoformat()
        assert await post("none") == (409, {"ENVELOPE_REPLAY"})
        assert await post("half", x_nonce=nonce) == (400, {"BAD_VALUE"})
        assert await post("half", x_created=created) == (400, {"BAD_VALUE"})
        old = (now - timedelta(hours=1)).isoformat()
        assert await post("old", x_nonce=nonce, x_created=old) == (422, {"ENVELOPE_STALE"})
        assert CALLS == []
        assert await post("good", x_nonce=nonce, x_created=created) == (201, {"0.0"})
        # The same once more gets its answer again; something else with its nonce gets none.
        assert await post("good", x_nonce=nonce, x_created=created) == (201, {"0.0"})
        assert await post("evil", x_nonce=nonce, x_created=created) == (409, {"ENVELOPE_REPLAY"})
        assert len(CALLS) == 1


@pytest.mark.parametrize("envelopes", [False, True])
async def test_what_an_adapter_wraps_is_its_own_and_envelopes_in_files_are_not(
    service: BusService, tmp_path: Path, envelopes: bool
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    kind = {} if envelopes else {"verb": "create", "noun": "Notes"}
    reader = SourceReader(
        Source("files", FolderBox(folder, 10**6), CONTEXT, **kind), WebDoor(service)
    )
    for number, guarded in enumerate((False, True)):
        body = NOTE.format(f"file {number}")
        sender = Sender("EMS", CONTEXT, replay_detection=guarded)
        if envelopes:
            body = encode(sender.request("create", "Notes", body)).decode()
        (folder / f"{number}.xml").write_text(body)
    taken = await reader.look()
    left = sorted(file.name for file in folder.iterdir())
    if envelopes:
        assert (taken, left, len(CALLS)) == (1, ["0.xml.error"], 1)
    else:
        assert (taken, left, len(CALLS)) == (2, [], 2)
