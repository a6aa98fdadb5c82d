"""Asking a node of MADES 1.1: SOAP 1.2 with attachments out, values or refusals back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import BinaryIO

from lxml import etree

from gridpost.core.certificate import CertificateKind
from gridpost.core.https import Authorise, HttpRequest
from gridpost.core.ports import HttpsCaller
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades11.forms import read_error
from gridpost.wire.mades11.services import NAMESPACE
from gridpost.wire.soap.envelope import Envelope, EnvelopeLimits, EnvelopeReader, Path, in_memory
from gridpost.wire.soap.fault import envelope_text
from gridpost.wire.soap.mtom import MtomMessage, MtomReader, MtomType
from gridpost.wire.soap.version import SOAP_12, MediaType
from gridpost.wire.x509 import read_certificate

LIMITS = EnvelopeLimits(256 * 1024 * 1024, 64 * 1024 * 1024, max_documents=100_000)


class NodeSoapClient:
    def __init__(self, caller: HttpsCaller) -> None:
        self._caller = caller

    async def call(
        self,
        urls: Sequence[str],
        authorise: Authorise,
        operation: str,
        texts: Sequence[str],
        contents: Sequence[bytes] = (),
        large: Collection[Path] = (),
    ) -> Envelope:
        """The answer of one of the URLs, or what it refused. `texts` stand around `contents`."""
        media_type, body = compose(operation, texts, contents, attach=bool(large))
        answer = await self._caller.request(
            HttpRequest("POST", "", body, media_type), urls=urls, authorise=authorise
        )
        content_type = answer.headers.get("content-type", "")
        return await asyncio.to_thread(read_answer, content_type, answer.pieces, large, operation)


def compose(
    operation: str, texts: Sequence[str], contents: Sequence[bytes] = (), *, attach: bool = False
) -> tuple[str, bytes | tuple[bytes | memoryview, ...]]:
    """Media type and body of a request; MTOM as soon as there is a document (cl. 5.5).

    `attach`: MTOM without a document, by which the server learns that it may answer so.
    """
    head, tail = envelope_text(SOAP_12)
    parts = list(texts)
    parts[0] = head + parts[0]
    parts[-1] += tail
    action = f'action="{NAMESPACE}{operation}"'
    if not contents and not attach:
        return f"{SOAP_12.content_type}; {action}", parts[0].encode()
    message = MtomMessage.of_many(SOAP_12, parts, contents)
    return f"{message.content_type}; {action}", tuple(message.pieces())


def read_answer(
    content_type: str,
    pieces: Iterable[bytes],
    large: Collection[Path],
    operation: str,
    spool: Callable[[], BinaryIO] = in_memory,
) -> Envelope:
    mtom = MtomType.read(content_type, None)
    reader: EnvelopeReader | MtomReader
    if mtom is not None:
        reader = MtomReader(mtom, large, LIMITS, spool)
    else:
        reader = EnvelopeReader(MediaType.read(content_type, None).version, large, LIMITS, spool)
    for piece in pieces:
        reader.feed(piece)
    envelope = reader.close()
    if etree.QName(envelope.body).localname == "Fault":
        raise _refusal(envelope.body, operation)
    return envelope


def _refusal(fault: etree._Element, operation: str) -> Refusal:
    name = f"{{{NAMESPACE}}}{operation}Error"
    detail = next(fault.iter(name), None)
    if detail is None:
        reason = " ".join("".join(t) for t in fault.itertext()).strip()
        return Refusal(Rule.UNREACHABLE, f"{operation} was answered with a fault", reason[:500])
    found = read_error(detail)
    rule = {
        "AUTHENTICATION_ERROR": Rule.ACCESS_DENIED,
        "CONCURRENT_ERROR": Rule.BUSY,
        "INTERNAL_ERROR": Rule.UNREACHABLE,
    }.get(found.code, Rule.REFUSED_BY_DIRECTORY)
    return Refusal(
        rule, f"{operation}: {found.code}: {found.message}", f"{found.details} ({found.error_id})"
    )


def belongs_to(code: str) -> Authorise:
    """Cl. 3.5.2: the peer is the component that we want, not only a trusted one."""

    def authorise(chain: Sequence[bytes]) -> None:
        name = read_certificate(chain[0], CertificateKind.AUTHENTICATION).subject_code
        if name != code:
            raise Refusal(
                Rule.CERTIFICATE_NOT_OF_COMPONENT,
                f"{code} shows the certificate of '{name}'",
            )

    return authorise
