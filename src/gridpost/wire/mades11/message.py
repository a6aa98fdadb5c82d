"""InternalMessage of MADES 1.1 (Tables 61 to 67) in XML. The content stands beside the text."""

from __future__ import annotations

from lxml import etree

from gridpost.core.identifiers import component_code, message_id, message_type
from gridpost.core.instant import Instant
from gridpost.core.message import Entry, InternalType, Metadata, Processor, ValueType
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import MADES_1
from gridpost.wire.mades import values
from gridpost.wire.mades.values import named
from gridpost.wire.mades11.forms import number, text
from gridpost.wire.xml_text import element, escape, optional


def encode(metadata: Metadata) -> tuple[str, str]:
    """What stands before and after the content of a `messages` element."""
    expiration = metadata.expiration_time
    before = (
        "<messages>"
        f"{element('messageID', metadata.message_id)}"
        f"{element('receiverCode', metadata.receiver_code)}"
        f"{element('businessType', metadata.message_type)}<content>"
    )
    after = (
        "</content>"
        f"{optional('extension', metadata.extension)}"
        f"{element('generated', metadata.generated.text)}"
        f"{_NO_EXPIRATION if expiration is None else _expiration(expiration)}"
        f"{element('senderCode', metadata.sender_code)}"
        f"{element('senderDescription', metadata.sender_description)}"
        f"{element('internalType', metadata.internal_type)}"
        f"{optional('relatedMessageID', metadata.related_message_id)}"
        f"{optional('senderApplication', metadata.sender_application)}"
        f"{optional('baMessageID', metadata.ba_message_id)}"
        f"<metadata>{''.join(map(_processor, metadata.processors))}</metadata>"
        f"<messageMversion>{metadata.message_mversion:d}</messageMversion></messages>"
    )
    return before, after


# Table 61 requires it and the description does not (REPAIRS, tables vs WSDL): it is always there, and
# says that a sender gave none. Nothing is made up: acknowledgements repeat what it says.
_NO_EXPIRATION = (
    '<expirationTime xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:nil="true"/>'
)


def _expiration(at: Instant) -> str:
    return element("expirationTime", str(at.milliseconds))


def decode(found: etree._Element) -> Metadata:
    """From a `messages` element that the schema accepted. Texts that are signed stay as they are."""
    expiration = number(found, "expirationTime")
    version = number(found, "messageMversion")
    return Metadata(
        message_id=named("messageID", message_id, text(found, "messageID")),
        receiver_code=named("receiverCode", component_code, text(found, "receiverCode")),
        message_type=named("businessType", message_type, text(found, "businessType")),
        generated=named("generated", Instant.parse, text(found, "generated").strip()),
        expiration_time=None if expiration is None else Instant.of_milliseconds(expiration),
        sender_code=named("senderCode", component_code, text(found, "senderCode")),
        internal_type=_internal_type(text(found, "internalType")),
        extension=text(found, "extension"),
        related_message_id=text(found, "relatedMessageID"),
        sender_application=text(found, "senderApplication"),
        ba_message_id=text(found, "baMessageID"),
        processors=tuple(
            Processor(text(item, "processorID"), tuple(_entries(item)))
            for item in found.iterfind("metadata/messageProcessors")
        ),
        message_mversion=MADES_1 if version is None else version,
        sender_description=text(found, "senderDescription"),
    )


def _internal_type(found: str) -> InternalType:
    try:
        return InternalType(found)
    except ValueError:
        raise Refusal(Rule.BAD_VALUE, "internalType is none of Table 62") from None


def _entries(processor: etree._Element) -> list[Entry]:
    entries = []
    for item in processor.iterfind("processorData/entries"):
        entry = Entry(text(item, "key"), ValueType(text(item, "type")), text(item, "value"))
        if entry.type is not ValueType.STRING:
            values.check(entry)
        entries.append(entry)
    return entries


def _processor(processor: Processor) -> str:
    entries = "".join(
        f"<entries><key>{escape('key', e.key)}</key><type>{e.type.value}</type>"
        f"<value>{escape(e.key, e.value)}</value></entries>"
        for e in processor.entries
    )
    return (
        f"<messageProcessors>{element('processorID', processor.processor_id)}"
        f"<processorData>{entries}</processorData></messageProcessors>"
    )
