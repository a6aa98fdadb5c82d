"""The bus of one company: a control is created, asked for and cancelled, and a subscriber hears of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

from gridpost.assembly.network import Placed
from gridpost.core.refusal import Refusal, Rule
from gridpost.demo.part import Done, blaming, console_of, process_of
from gridpost.demo.processes import ComponentProcess
from gridpost.demo.rabbit import DemoRabbit
from gridpost.envelope import EventMessage, Payload, ResponseMessage, Result, Sender, content
from gridpost.envelope.client import BusClient
from gridpost.transports.amqp091 import Amqp091Client, Amqp091Tls

SERVICE, USER = "bus", "ems"
HOST, CONTEXT, NOUN = "bus", "TESTING", "EndDeviceControls"
ANSWER = timedelta(seconds=90)

CONFIGURATION = """# The bus of the demonstration.
component = "bus"
code = "{code}"
home = "data"
contexts = ["{context}"]

[rabbitmq]
urls = ["{rabbit.url}"]
virtual_host = "{host}"
roots = "{rabbit.roots}"
certificate = "{certificate}"
key = "{key}"

[operations]
port = {operations}
"""
CONTROL = (
    '<c:EndDeviceControls xmlns:c="http://iec.ch/TC57/2011/EndDeviceControls#">'
    "<c:EndDeviceControl><c:mRID>{mrid}</c:mRID></c:EndDeviceControl></c:EndDeviceControls>"
)


class BusPart:
    name: ClassVar[str] = "bus"
    steps: ClassVar[tuple[str, ...]] = ("bus serves", "control created", "control found",
                                        "control cancelled", "events heard")  # fmt: skip

    def __init__(self, home: Path, placed: Placed, rabbit: DemoRabbit) -> None:
        self._placed = placed
        self._rabbit = rabbit
        self._process = process_of(home, placed)

    @property
    def processes(self) -> tuple[ComponentProcess, ...]:
        return (self._process,)

    def prepare(self) -> None:
        file = self._placed.configuration
        certificate, key = self._rabbit.certificate(SERVICE)
        file.touch(mode=0o600)
        file.write_text(
            CONFIGURATION.format(
                code=self._placed.code, context=CONTEXT, rabbit=self._rabbit, host=HOST,
                certificate=certificate, key=key, operations=self._placed.ports["operations"],
            )
            + console_of(self._placed, self._rabbit.server_certificate),
            encoding="utf-8",
        )  # fmt: skip

    async def show(self, done: Done) -> dict[str, Any]:
        await self._process.start()
        done(self.steps[0])
        tls = Amqp091Tls(self._rabbit.roots, *self._rabbit.certificate(USER)).context
        connection = await Amqp091Client([self._rabbit.url], virtual_host=HOST, tls=tls).connect()
        try:
            async with blaming(self._process, USER):
                client = await BusClient(connection, CONTEXT, within=ANSWER).open()
                return await self._use(client, done)
        finally:
            await connection.close()

    async def _use(self, client: BusClient, done: Done) -> dict[str, Any]:
        sender, mrid = Sender("EMS", CONTEXT), str(uuid4())
        events: asyncio.Queue[EventMessage] = asyncio.Queue()
        await client.subscribe(events.put_nowait, noun=NOUN)
        requests = (
            sender.request("create", NOUN, CONTROL.format(mrid=mrid)),
            sender.request("get", NOUN, ids=[mrid]),
            sender.request("cancel", NOUN, ids=[mrid]),
        )
        for number, request in enumerate(requests, 1):
            answer = await client.call(request)
            verb = request.header.verb
            if not isinstance(answer, ResponseMessage) or answer.reply.result is not Result.OK:
                raise Refusal(Rule.INTERNAL, f"{verb} {NOUN} was answered with {answer}")
            if verb == "get" and mrid not in "".join(
                part.text for part in content(answer.payload or Payload())
            ):
                raise Refusal(Rule.INTERNAL, f"the control {mrid} was not in the answer")
            done(self.steps[number])
        async with asyncio.timeout(ANSWER.total_seconds()):
            heard = [str((await events.get()).header.verb) for _ in range(2)]
        done(self.steps[4])
        return {"requests": len(requests), "replies": len(requests), "events": heard}
