"""Envelopes of AMQP 1.0 clients as RabbitMQ hands them to a client of AMQP 0-9-1.

A BytesMessage arrives as its bytes. A TextMessage, whose body is a value and not data, arrives as
the encoded section, and the message has the type `amqp-1.0`. Addresses are written as RabbitMQ's
own: `/queue/NAME` in 3.x, `/queues/NAME` with percent-encoding in 4.x.
"""

from __future__ import annotations

from urllib.parse import unquote

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.amqp.codec import decode
from gridpost.wire.amqp.sections import Section, split

TYPE = "amqp-1.0"


def body_of(data: bytes) -> bytes:
    """The text or the data of an AMQP 1.0 message, as UTF-8."""
    sections = split(data)
    if sections.body and all(part.kind is Section.DATA for part in sections.body):
        return b"".join(bytes(_binary(part.value)) for part in sections.body)
    if len(sections.body) == 1 and sections.body[0].kind is Section.AMQP_VALUE:
        value = decode(sections.body[0].value)
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
    raise Refusal(Rule.ENVELOPE_FORM, "an envelope is sent as a TextMessage or a BytesMessage")


def _binary(section: memoryview) -> bytes:
    value = decode(section)
    assert isinstance(value, bytes | bytearray | memoryview)
    return bytes(value)


def queue_of(address: str) -> str:
    """The queue that an address names; a plain name is one."""
    for prefix in ("/amq/queue/", "/queue/"):
        if address.startswith(prefix):
            return address.removeprefix(prefix)
    if address.startswith("/queues/"):
        return unquote(address.removeprefix("/queues/"))
    return address
