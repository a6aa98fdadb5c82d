"""Two buses of two companies, joined by their MADES endpoints: requests go over, replies come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridpost.core.journal import EnvelopeRow
from gridpost.envelope import RequestMessage, Result
from support import bus_handlers
from support.bus_site import CONTEXT, journal
from support.bus_web import NOTE, WebBus, WebService, web_bus, web_service
from support.network import API_PASSWORD, network
from support.waiting import eventually


def _passed(bus: WebBus, request: RequestMessage) -> list[tuple[str, str, str]]:
    """What the journal has of an exchange; the name of a reply queue is another each time."""
    return [
        (
            r.direction,
            r.message_kind,
            "queue" if r.destination.startswith("queue:") else r.destination,
        )
        for r in journal(bus.home)
        if isinstance(r, EnvelopeRow) and r.correlation_id == request.header.correlation_id
    ]


@pytest.mark.timeout(300)
async def test_an_envelope_for_another_party_goes_through_the_endpoints_and_back(
    rabbitmq, tmp_path: Path
) -> None:
    for name in ("network", "one", "two"):
        (tmp_path / name).mkdir()
    async with network(tmp_path / "network") as net:
        for code in ("E1", "E2"):
            await net.endpoint(code, "DIRECT", direct=True)
        await net.start("E1", "E2")
        await net.known("E1", "E2")
        await net.known("E2", "E1")

        def mades(code: str) -> dict[str, object]:
            url = f"http://127.0.0.1:{net.ports[code]}"
            section = {"url": url, "user": "app", "password": API_PASSWORD, "context": CONTEXT}
            return {**section, "every": "100ms"}

        routes = [{"noun": "Notes", "when": "m:Source = 'EMS'", "targets": [{"to": "mades:E2"}]}]
        async with (
            web_bus(
                rabbitmq, tmp_path / "one", code="ONE", routes=routes, mades=mades("E1")
            ) as one,
            web_bus(rabbitmq, tmp_path / "two", code="TWO", mades=mades("E2")) as two,
            web_service() as client,
        ):
            assert isinstance(client, WebService)
            request = one.sender.request("create", "Notes", NOTE.format("over there"))
            answer = await one.ask(request)
            assert answer.reply.result is Result.OK, answer
            assert answer.header.source == "TWO"
            assert answer.header.correlation_id == request.header.correlation_id
            calls = [call for call in bus_handlers.CALLS if call[1] == request.header.message_id]
            assert len(calls) == 1
            path = f"/bus/{CONTEXT}/soap"
            assert _passed(one, request) == [
                ("out", "request", "mades:E2"),
                ("in", "response", "mades:E2"),
                ("out", "response", "queue"),
                ("in", "request", path),
                ("out", "response", path),
            ]
            assert _passed(two, request)[:2] == [
                ("in", "request", "mades:E1"),
                ("out", "response", "mades:E1"),
            ]
            # Asynchronously: the reply goes to the client's own web service.
            later = one.sender.request("get", "Notes", ids=["a"], reply_address=client.url)
            assert (await one.ask(later)).reply.result is Result.PARTIAL
            await eventually(lambda: client.taken)
            (reply,) = client.taken
            assert reply.header.correlation_id == later.header.correlation_id
            assert reply.header.source == "TWO"
