"""The endpoint interface of MADES 1.1 for applications that still use it, beside the one of 503.

The same documents, users and states as in the new interface; only names and forms are old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gridpost.core.channels import Channel, Origin
from gridpost.core.delivery import STATUS, Event, Side, State, Status, TraceEntry
from gridpost.core.delivery_report import DeliveryReport, report
from gridpost.core.identifiers import message_id
from gridpost.core.instant import Instant
from gridpost.core.message import Metadata
from gridpost.core.message_path import OLD_NETWORK
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.enquiry import Enquiry
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.soap_operations import Operation, Reply
from gridpost.services.endpoint.submission import Document, Submission
from gridpost.services.endpoint.users import User, Users, check_send
from gridpost.wire.mades11 import endpoint_service as form
from gridpost.wire.mades11.endpoint_service import OldStatus, OldTraceItem
from gridpost.wire.mades11.forms import text
from gridpost.wire.mades11.services import SENT_CONTENT
from gridpost.wire.soap.envelope import Envelope

TRACING_TYPE = "TRACING"
"""Cl. 3.12: the business-type of a tracing-message is irrelevant, but there must be one."""


class SoapOperations11:
    def __init__(
        self,
        context: EndpointContext,
        users: Users,
        submission: Submission,
        handover: Handover,
        enquiry: Enquiry,
    ) -> None:
        self._context = context
        self._users = users
        self._submission = submission
        self._handover = handover
        self._enquiry = enquiry
        self.by_name: dict[str, Operation] = {
            "SendMessage": self._send,
            "ReceiveMessage": self._receive,
            "ConfirmReceiveMessage": self._confirm,
            "ConnectivityTest": self._test,
            "CheckMessageStatus": self._status,
        }

    async def _send(self, user: User, envelope: Envelope) -> Reply:
        asked = form.read_send(envelope.body)
        check_send(user, asked.message_type)
        spooled = envelope.binaries.get(SENT_CONTENT)
        content = b"" if spooled is None else await asyncio.to_thread(spooled.read)
        document = Document(
            asked.receiver_code,
            asked.message_type,
            content,
            asked.ba_message_id,
            asked.sender_application,
            conversation_id=asked.conversation_id,
        )
        sent = await self._submission.send(_origin(user), document)
        return Reply(form.with_message_id("SendMessage", sent))

    async def _receive(self, user: User, envelope: Envelope) -> Reply:
        type_, download = form.read_receive(envelope.body)
        self._users.check_receive(user, Channel.SOAP, type_)
        handed = await self._handover.receive(type_, download=download, channel=Channel.SOAP)
        if handed.entry is None:
            return Reply(form.nothing_received())
        before, after = form.received(handed.entry.metadata, handed.remaining)
        return Reply(before, after, handed.content or b"")

    async def _confirm(self, user: User, envelope: Envelope) -> Reply:
        asked = message_id(text(envelope.body, "messageID"))
        entry = await self._enquiry.entry(Side.RECEIVED, asked)
        self._users.check_receive(user, Channel.SOAP, entry.metadata.message_type)
        await self._handover.confirm(entry.message_id)
        return Reply(form.with_message_id("ConfirmReceiveMessage", entry.message_id))

    async def _test(self, user: User, envelope: Envelope) -> Reply:
        receiver = text(envelope.body, "receiverCode")
        check_send(user, TRACING_TYPE)
        sent = await self._submission.test_connectivity(_origin(user), receiver, TRACING_TYPE)
        return Reply(form.with_message_id("ConnectivityTest", sent))

    async def _status(self, user: User, envelope: Envelope) -> Reply:
        asked = message_id(text(envelope.body, "messageID"))
        entry = await self._enquiry.entry(Side.SENT, asked)
        check_send(user, entry.metadata.message_type)
        trace = await self._enquiry.trace(Side.SENT, entry.message_id)
        acknowledgements = await self._context.store.read(
            lambda work: work.box.acknowledgements(entry.message_id)
        )
        told = report(entry.metadata, trace, acknowledgements)
        items = old_trace(entry.metadata, trace, told)
        codes = {item.component for item in items}
        delivered = next((e.timestamp for e in told.events if e.status is Status.DELIVERED), None)
        return Reply(
            form.status(
                OldStatus(
                    entry.metadata,
                    old_state(entry.delivery.state),
                    delivered,
                    items,
                    {code: self._name(code) for code in codes},
                )
            )
        )

    def _name(self, code: str) -> str:
        second = self._submission.ways.second
        return self._context.display_name(code) or ("" if second is None else second.name(code))


def old_state(state: State) -> str:
    """MADES 1.1 Table 1: what lies between acceptance and delivery has names of its own there."""
    if state in (State.DELIVERING, State.RECEIVE_HELD):
        return "DELIVERING"
    if state in (State.SENDING, State.VERIFYING):
        return "VERIFYING"
    status = STATUS.get(state)
    if status is None:
        raise Refusal(Rule.MESSAGE_UNKNOWN, "this message was not sent from here")
    return status.value


def old_trace(
    metadata: Metadata, trace: Sequence[TraceEntry], told: DeliveryReport
) -> list[OldTraceItem]:
    """Table 4: events 1 to 6. Event 1 is the hand-over itself, event 3 the first transfer."""
    items = [OldTraceItem(metadata.generated, "VERIFYING", metadata.sender_code)]
    if trace and trace[-1].state is State.VERIFYING:
        return items
    transported = next((line for line in trace if line.event is Event.TRANSFERRED), None)
    for event in told.events:
        if event.status is not Status.ACCEPTED and transported is not None:
            items.append(_transported(metadata, transported))
            transported = None
        items.append(
            OldTraceItem(event.timestamp, event.status.value, event.component, event.details)
        )
    if transported is not None:
        items.append(_transported(metadata, transported))
    return items


def _transported(metadata: Metadata, line: TraceEntry) -> OldTraceItem:
    """Table 4 event 3: its issuer is the node of the recipient, where there is one."""
    _, _, node = line.detail.partition(f"{OLD_NETWORK}:")
    issuer = node or metadata.sender_code
    return OldTraceItem(Instant.of(line.at), "TRANSPORTED", issuer, line.detail)


def _origin(user: User) -> str:
    return str(Origin(Channel.SOAP, user.name))
