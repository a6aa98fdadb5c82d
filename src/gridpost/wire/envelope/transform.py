"""What an intermediary may do to an envelope on its way: transform it by XSLT, or unpack its payload."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from lxml import etree

from gridpost.core.envelope import FaultMessage
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope.payload import expanded
from gridpost.wire.envelope.reading import decode
from gridpost.wire.envelope.writing import encode
from gridpost.wire.xml import DEFAULT_LIMITS, XmlLimits, parse


class Xslt:
    """A stylesheet from envelope to envelope; it reads no files and no network (61968-100 cl. 5.3.6)."""

    def __init__(self, file: Path, limits: XmlLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        try:
            tree = etree.parse(file, etree.XMLParser(resolve_entities=False, no_network=True))
            self._sheet = etree.XSLT(tree, access_control=etree.XSLTAccessControl.DENY_ALL)
        except (OSError, etree.XMLSyntaxError, etree.XSLTParseError) as error:
            raise Refusal(Rule.USAGE, f"{file} is not a usable stylesheet: {error}") from None

    def __call__(self, envelope: bytes) -> bytes:
        try:
            result = self._sheet(parse(envelope, self._limits))
        except etree.XSLTApplyError as error:
            raise Refusal(Rule.WEB_REFUSED, f"the transformation failed: {error}") from None
        found: bytes = etree.tostring(result, encoding="UTF-8")
        decode(found)  # what is no envelope any more does not go on
        return found


@dataclass(frozen=True, slots=True)
class Treatment:
    """On the way to one target."""

    xslt: Xslt | None = None
    unpack: bool = False
    """Annex F: the target cannot decompress."""

    def __call__(self, envelope: bytes) -> bytes:
        if self.unpack:
            message = decode(envelope)
            if not isinstance(message, FaultMessage):
                payload = message.payload
                if payload is not None and payload.compressed is not None:
                    envelope = encode(replace(message, payload=expanded(payload)))
        return envelope if self.xslt is None else self.xslt(envelope)
