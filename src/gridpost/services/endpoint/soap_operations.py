"""The five services of 503 cl. 11.1 for one user: what a request asks for, and the response in XML."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from gridpost.core.channels import Channel, Origin
from gridpost.core.delivery import Side
from gridpost.core.delivery_report import report
from gridpost.core.identifiers import message_id
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.enquiry import Enquiry
from gridpost.services.endpoint.handover import Handover
from gridpost.services.endpoint.submission import Document, Submission
from gridpost.services.endpoint.users import User, Users, check_send
from gridpost.wire.mades import endpoint_service as form
from gridpost.wire.soap.base64_text import encode_pieces, encoded_size
from gridpost.wire.soap.envelope import Envelope


@dataclass(frozen=True, slots=True)
class Reply:
    """The body of a response; a document stands as base64 between the two texts."""

    before: str
    after: str = ""
    content: bytes = b""

    @property
    def size(self) -> int:
        return (
            len(self.before.encode()) + encoded_size(len(self.content)) + len(self.after.encode())
        )

    def pieces(self) -> Iterator[bytes]:
        yield self.before.encode()
        yield from encode_pieces(self.content)
        yield self.after.encode()


Operation = Callable[[User, Envelope], Awaitable[Reply]]


class SoapOperations:
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
        spooled = envelope.binaries.get(form.CONTENT)
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
        asked = message_id(form.read_message_id(envelope.body))
        entry = await self._enquiry.entry(Side.RECEIVED, asked)
        self._users.check_receive(user, Channel.SOAP, entry.metadata.message_type)
        await self._handover.confirm(entry.message_id)
        return Reply(form.with_message_id("ConfirmReceiveMessage", entry.message_id))

    async def _test(self, user: User, envelope: Envelope) -> Reply:
        receiver, type_ = form.read_connectivity_test(envelope.body)
        check_send(user, type_)
        sent = await self._submission.test_connectivity(_origin(user), receiver, type_)
        return Reply(form.with_message_id("ConnectivityTest", sent))

    async def _status(self, user: User, envelope: Envelope) -> Reply:
        asked = message_id(form.read_message_id(envelope.body))
        entry = await self._enquiry.entry(Side.SENT, asked)
        check_send(user, entry.metadata.message_type)
        trace = await self._enquiry.trace(Side.SENT, entry.message_id)
        acknowledgements = await self._context.store.read(
            lambda work: work.box.acknowledgements(entry.message_id)
        )
        state = entry.delivery.status
        if state is None:
            raise Refusal(Rule.MESSAGE_UNKNOWN, f"no message {asked} was sent from here")
        codes = (entry.metadata.sender_code, entry.metadata.receiver_code)
        names: dict[str, str] = {code: self._context.display_name(code) for code in codes}
        found = report(entry.metadata, trace, acknowledgements)
        return Reply(form.status(form.MessageStatus(entry.metadata, state, found, names)))


def _origin(user: User) -> str:
    return str(Origin(Channel.SOAP, user.name))
