"""One exchange from a document to its verified proof, between two endpoints in this process.

Core, wire formats, seal, keys and stores are those of the product. What stands in for the network
is `InProcessPost`: it applies the broker's rules and carries the same bytes that AMQP would carry.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from gridpost.core.amqp_access import BrokerAccess
from gridpost.core.delivery import Side, Status
from gridpost.core.identifiers import ComponentCode, MessageId
from gridpost.core.message_path import Restriction, Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.demo.network import (
    BROKER,
    NORTHGRID,
    PARTIES,
    SOUTHPOWER,
    Network,
    SystemClock,
    build_network,
)
from gridpost.demo.result import DemoResult
from gridpost.services.endpoint.arrival import Arrival
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.enquiry import Enquiry
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.submission import Document, Submission
from gridpost.services.endpoint.transfer import Transfer
from gridpost.stores.sqlite import SqliteStore
from gridpost.wire.amqp.sections import split
from gridpost.wire.mades.amqp_message import read_fields
from gridpost.wire.seal.proof import Verdict, verify_proof

MESSAGE_TYPE = "A01-SCHEDULE"
DOCUMENT = """<?xml version="1.0" encoding="UTF-8"?>
<Schedule><Party>{party}</Party><Number>{number}</Number><Quantity unit="MW">125</Quantity></Schedule>
"""

Say = Callable[..., None]


class InProcessPost:
    """Carries messages between the endpoints of one process, by the rules of a broker."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._access = BrokerAccess(Restriction())
        self.arrivals: dict[ComponentCode, Arrival] = {}

    async def deliver(self, route: Route, receiver: ComponentCode, data: bytes) -> None:
        if route.broker != BROKER:
            raise Refusal(Rule.BROKER_UNKNOWN, f"there is no way {route} in this demonstration")
        fields = read_fields(split(data))
        self._access.produce(
            self._network.directory,
            fields.sender_code,
            receiver,
            sender_code=fields.sender_code,
            receiver_code=fields.receiver_code,
            subject=fields.subject,
            at=SystemClock().now(),
        )
        await self.arrivals[receiver].arrive(data, route)


@dataclass(frozen=True, slots=True)
class Party:
    submission: Submission
    handover: Handover
    transfer: Transfer
    enquiry: Enquiry
    evidence: Evidence


def run_demo(*, once: bool, messages: int, home: Path | None, say: Say) -> DemoResult:
    """Exchange `messages` documents each way. There is nothing to stay up for in one process."""
    if home is None:
        with tempfile.TemporaryDirectory(prefix="gridpost-demo-") as folder:
            return asyncio.run(_exchange(messages, Path(folder), say))
    if home.exists() and any(home.iterdir()):
        raise Refusal(
            Rule.USAGE,
            f"{home} is not empty",
            "name a folder that is new or empty: the demonstration makes its keys there",
        )
    return asyncio.run(_exchange(messages, home, say))


async def _exchange(messages: int, home: Path, say: Say) -> DemoResult:
    started = time.monotonic()
    say("Making a root CA, a directory, a broker and two endpoints …")
    network = build_network(home, SystemClock().now())
    async with AsyncExitStack() as stack:
        parties = await _open(network, home, stack)
        sent: list[tuple[ComponentCode, MessageId]] = []
        for number in range(1, messages + 1):
            for sender, receiver in ((NORTHGRID, SOUTHPOWER), (SOUTHPOWER, NORTHGRID)):
                text = DOCUMENT.format(party=sender, number=number)
                message_id = await parties[sender].submission.send(
                    "demo", Document(receiver, MESSAGE_TYPE, text.encode(), f"DOC-{number}")
                )
                sent.append((sender, message_id))
        await _carry(parties)
        for party in parties.values():
            while (waiting := (await party.handover.receive(MESSAGE_TYPE)).entry) is not None:
                await party.handover.confirm(waiting.message_id)
        await _carry(parties)
        verdicts = {}
        statuses = {}
        for sender, message_id in sent:
            statuses[message_id] = await parties[sender].enquiry.status(message_id)
            proof = await parties[sender].evidence.of_sent(message_id)
            verdicts[message_id] = verify_proof(proof, [network.root])
        await _show(parties, sent[0], verdicts[sent[0][1]], say)
    received = sum(status is Status.RECEIVED for status in statuses.values())
    verified = sum(v.origin.proven and v.receipt.proven for v in verdicts.values())
    seconds = round(time.monotonic() - started, 3)
    say(
        f"{received} of {len(sent)} documents RECEIVED, {verified} proofs verified, in {seconds} s."
    )
    return DemoResult(
        sent=len(sent),
        received=received,
        failed=len(sent) - min(received, verified),
        proofs_verified=verified,
        by_channel={"in-process": len(sent)},
        seconds=seconds,
    )


async def _open(network: Network, home: Path, stack: AsyncExitStack) -> dict[ComponentCode, Party]:
    post = InProcessPost(network)
    parties = {}
    for code in PARTIES:
        store = SqliteStore.open(home / code / "store", code)
        stack.push_async_callback(store.close)
        context = EndpointContext(
            code, store, network.keyrings[code], SystemClock(), lambda: network.directory
        )
        post.arrivals[code] = Arrival(context)
        parties[code] = Party(
            Submission(context),
            Handover(context),
            Transfer(context, post),
            Enquiry(context),
            Evidence(context),
        )
    return parties


async def _carry(parties: dict[ComponentCode, Party]) -> None:
    """Until nobody has anything left to send."""
    while any([await party.transfer.round() for party in parties.values()]):
        pass


async def _show(
    parties: dict[ComponentCode, Party],
    first: tuple[ComponentCode, MessageId],
    verdict: Verdict,
    say: Say,
) -> None:
    sender, message_id = first
    table = Table(title=f"Trace of {message_id}", title_justify="left")
    for heading in ("time (UTC)", "at", "event", "state", "detail"):
        table.add_column(heading)
    receiver = next(code for code in PARTIES if code != sender)
    lines = [
        (code, line)
        for code, side in ((sender, Side.SENT), (receiver, Side.RECEIVED))
        for line in await parties[code].enquiry.trace(side, message_id)
    ]
    for code, line in sorted(lines, key=lambda pair: pair[1].at):
        moment = f"{line.at:%H:%M:%S.%f}"[:-3]
        table.add_row(moment, code, line.event, line.state, line.detail)
    say(table)
    say(f"Origin:  {verdict.origin.standing.value}, signed by {verdict.origin.party}")
    say(f"Receipt: {verdict.receipt.standing.value}, signed by {verdict.receipt.party}")
    say(f"Digest:  SHA-512 {verdict.digest.hex()[:32]}…")
