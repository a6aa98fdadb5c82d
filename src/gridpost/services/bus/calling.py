"""The bus as a client of web services: an envelope goes out in a SOAP body, its answer comes back.

Three outcomes of a call are told apart (61968-100 cl. 5.2.2): an answer whatever its Result, a fault
that the service gave, and no answer at all, which alone may be tried again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from io import BytesIO

from lxml import etree

from gridpost.core.envelope import (
    AnyMessage,
    EventMessage,
    FaultMessage,
    RequestMessage,
    ResponseMessage,
)
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope import decode, element_text
from gridpost.wire.envelope.typed import TypedService
from gridpost.wire.soap.envelope import EnvelopeLimits, EnvelopeReader, standalone
from gridpost.wire.soap.fault import SoapError, envelope_text
from gridpost.wire.soap.version import SOAP_11

ACTIONS = "http://iec.ch/61968"
HttpPost = Callable[
    [str, bytes, Mapping[str, str]], Awaitable[tuple[int, Mapping[str, str], bytes]]
]
"""URL, body and headers; status, headers and body of the answer. No answer is a Refusal."""
Secure = Callable[[bytes], bytes]
"""Puts a signature on a SOAP message."""
Heard = Callable[[str, bytes], Awaitable[None]]
"""Is told every envelope that is answered, with the address that answered it."""
_NO_ANSWER = (408, 425, 429, 502, 503, 504)
_LIMITS = EnvelopeLimits(0, 64 * 1024 * 1024)


class SoapCaller:
    """Generic web services of Annex D at any address."""

    def __init__(self, post: HttpPost, secure: Secure | None = None) -> None:
        self._post = post
        self._secure = secure
        self.heard: Heard | None = None

    async def call(
        self, url: str, envelope: bytes, headers: Mapping[str, str] | None = None
    ) -> bytes | None:
        """The envelope that is answered; None: accepted without an answer."""
        message = decode(envelope)
        action = f"{ACTIONS}/{operation_of(message)}"
        found = await self.exchange(url, element_text(message), action, headers)
        if found is not None and self.heard is not None:
            await self.heard(url, found)
        return found

    async def call_typed(self, url: str, service: TypedService, event: bytes) -> bytes | None:
        """61968-100 Annex C: an operation of a strongly typed service."""
        text, action = service.written(event)
        found = await self.exchange(url, text, action)
        if found is None:
            return None
        answer = service.answered(found)
        if self.heard is not None:
            await self.heard(url, answer)
        return answer

    async def exchange(
        self, url: str, element: str, action: str, headers: Mapping[str, str] | None = None
    ) -> bytes | None:
        head, tail = envelope_text(SOAP_11)
        body = f"{head}{element}{tail}".encode()
        if self._secure is not None:
            body = self._secure(body)
        said = {
            "content-type": SOAP_11.content_type,
            "soapaction": f'"{action}"',
            **(headers or {}),
        }
        status, _, answer = await self._post(url, body, said)
        if status in _NO_ANSWER:
            raise Refusal(Rule.UNREACHABLE, f"{clip(url)} answered {status}")
        if status == 202 or (status < 300 and not answer.strip()):
            return None
        if status not in (200, 400, 500):
            raise Refusal(Rule.WEB_REFUSED, f"{clip(url)} answered {status}")
        return _answer(answer, url)


def operation_of(message: AnyMessage) -> str:
    match message:
        case RequestMessage():
            return "Request"
        case ResponseMessage():
            return "Response"
        case EventMessage():
            return "PublishEvent"
    raise Refusal(
        Rule.ENVELOPE_FORM, "only requests, responses and events are sent to web services"
    )


def _answer(data: bytes, url: str) -> bytes:
    reader = EnvelopeReader(SOAP_11, (), _LIMITS, BytesIO)
    try:
        reader.feed(data)
        child = reader.close().body
    except SoapError:
        raise Refusal(Rule.WEB_REFUSED, f"{clip(url)} gave no SOAP answer") from None
    finally:
        reader.discard()
    if etree.QName(child).localname != "Fault":
        return standalone(child)
    detail = child.find("detail")
    told = None if detail is None else next(detail.iterchildren(tag=etree.Element), None)
    if told is not None and etree.QName(told).localname.endswith("FaultMessage"):
        return standalone(told)
    reason = child.findtext("faultstring") or "no reason given"
    raise Refusal(Rule.WEB_REFUSED, f"{clip(url)} gave a fault: {clip(reason, 300)}")


def accepted(answer: bytes | None, url: str) -> None:
    """A listener or a callback took what it was given; FAILED or a fault says that it did not."""
    if answer is None:
        return
    message = decode(answer)
    if isinstance(message, FaultMessage):
        raise Refusal(Rule.WEB_REFUSED, f"{clip(url)} answered with a fault")
    if isinstance(message, ResponseMessage) and message.reply.result == "FAILED":
        codes = " ".join(sorted(message.reply.codes))
        raise Refusal(Rule.WEB_REFUSED, f"{clip(url)} answered FAILED {clip(codes)}")
