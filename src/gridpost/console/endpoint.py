"""The console of an endpoint: overview, search, one message, sending and testing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from gridpost.console import charts
from gridpost.console.certificates import shown
from gridpost.console.configuring import PathPages, PathsDesk, SettingPages, SettingsDesk
from gridpost.console.frame import Frame, Visitor, moment_of, number_of
from gridpost.console.operating import OperatingPages
from gridpost.console.roles import Role
from gridpost.console.settings import Place
from gridpost.core.certificate import Certificate, CertificateKind, select
from gridpost.core.component import ComponentType
from gridpost.core.delivery import FINAL_STATES, Side, State, Status
from gridpost.core.identifiers import ComponentCode, clip
from gridpost.core.journal import JournalRow
from gridpost.core.message import ENCRYPTION, SIGNATURE
from gridpost.core.message_box import BoxEntry, Brief, Search, Tally
from gridpost.core.ports import UnitOfWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.enquiry import Enquiry
from gridpost.services.endpoint.evidence import Evidence
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.lines import LineView
from gridpost.services.endpoint.operating import Operating
from gridpost.services.endpoint.submission import Document, Submission
from gridpost.services.endpoint.tracking import processor_value
from gridpost.wire.proof_file import encode as encode_proof

PLACES = (
    Place("/", "Overview", "overview"),
    Place("/messages", "Messages", "message"),
    Place("/send", "Send and test", "send", Role.OPERATOR),
    Place("/operating", "Pauses", "queue", Role.OPERATOR),
    Place("/paths", "Message paths", "path"),
    Place("/settings", "Settings", "settings", Role.ADMINISTRATOR),
)
PAGE = 50
CHARTED = 10_000
"""Messages that an overview looks at; a busier endpoint has a shorter window."""
_FRESH_SECONDS = 3.0
_FIELDS = ("message_id", "conversation_id", "ba_message_id", "peer", "message_type", "text")


@dataclass(frozen=True, slots=True)
class Freshness:
    """What the local copy of the directory is worth."""

    succeeded_at: datetime | None
    succeeded_with: str
    failed_at: datetime | None
    reason: str
    push_pending: bool
    push_reason: str
    warnings: tuple[str, ...]


class Facts(Protocol):
    """What an overview tells of the endpoint itself."""

    def lines(self) -> Sequence[LineView]: ...

    def certificates(self) -> Sequence[Certificate]: ...

    def freshness(self) -> Freshness: ...


class EndpointConsole:
    def __init__(
        self,
        frame: Frame,
        context: EndpointContext,
        submission: Submission,
        enquiry: Enquiry,
        explaining: Explaining,
        evidence: Evidence,
        facts: Facts,
        paths: PathsDesk,
        settings: SettingsDesk,
        operating: Operating,
    ) -> None:
        self._frame = frame
        self._context = context
        self._submission = submission
        self._enquiry = enquiry
        self._explaining = explaining
        self._evidence = evidence
        self._facts = facts
        self._paths = PathPages(frame, context, paths)
        self._settings = SettingPages(frame, settings)
        self._operating = OperatingPages(frame, operating)
        self._looked: dict[str, tuple[float, tuple[Sequence[Brief], Tally]]] = {}

    def app(self) -> ASGIApp:
        route = self._frame.route
        one = "/messages/{side}/{id}"
        return self._frame.app(
            [
                route("/", self._overview),
                route("/messages", self._messages),
                route(one, self._message),
                route(one + "/proof", self._proof),
                route(one + "/document", self._document),
                route("/send", self._send_form, Role.OPERATOR),
                route("/send", self._send, Role.OPERATOR, "POST"),
                route("/test", self._test, Role.OPERATOR, "POST"),
                *self._operating.routes(),
                *self._paths.routes(),
                *self._settings.routes(),
            ]
        )

    # ------------------------------------------------------------ overview

    async def _overview(self, request: Request, visitor: Visitor) -> Response:
        span = request.query_params.get("span", "1h")
        if span not in charts.SPANS:
            raise Refusal(Rule.USAGE, "the overview shows 1h, 24h or 7d")
        length, step = charts.SPANS[span]
        now = self._frame.clock.now()
        since = now - length
        briefs, tally = await self._look(span, since)
        now_context = self._context.directory()
        certificates = sorted(self._facts.certificates(), key=lambda c: (c.kind, c.not_after))
        values: dict[str, Any] = {
            "span": span,
            "spans": list(charts.SPANS),
            "tally": tally,
            "statuses": list(Status),
            "lines": sorted(self._facts.lines(), key=lambda line: line.peer),
            "certificates": [shown(c) for c in certificates],
            "freshness": self._facts.freshness(),
            "subsystems": list(now_context.subsystems.values()),
            "traffic": charts.traffic(briefs, since, now, step),
            "latency": charts.latencies(briefs, since, now, step),
            "overall": charts.overall(briefs),
            "capped": len(briefs) == CHARTED,
            "seen": len(briefs),
            "octets": sum(b.size for b in briefs),
        }
        if "live" in request.query_params:
            return self._frame.render(request, "endpoint/live.html", fragment=True, **values)
        return self._frame.render(request, "endpoint/overview.html", **values)

    async def _look(self, span: str, since: datetime) -> tuple[Sequence[Brief], Tally]:
        """Many people may watch the same overview: the box is asked once in a while."""
        clock = asyncio.get_running_loop().time()
        known = self._looked.get(span)
        if known is not None and clock - known[0] < _FRESH_SECONDS:
            return known[1]

        def look(work: UnitOfWork) -> tuple[Sequence[Brief], Tally]:
            return work.box.recent(since, CHARTED), work.box.tally()

        found = await self._context.store.read(look)
        self._looked[span] = (clock, found)
        return found

    # ------------------------------------------------------------ messages

    async def _messages(self, request: Request, visitor: Visitor) -> Response:
        query = request.query_params
        before = number_of(query, "before")
        problem = ""
        found: list[BoxEntry] = []
        more = None
        try:
            found, more = await self._enquiry.search(_search(request), PAGE, before)
        except Refusal as refusal:
            problem = refusal.message
        asked = {
            name: query.get(name, "") for name in (*_FIELDS, "side", "status", "since", "until")
        }
        partial = request.headers.get("hx-request") is not None
        return self._frame.render(
            request,
            "endpoint/results.html" if partial else "endpoint/messages.html",
            422 if problem and not partial else 200,
            **({"fragment": True} if partial else {}),
            found=found,
            more=more,
            before=before,
            asked=asked,
            problem=problem,
            statuses=list(Status),
        )

    async def _message(self, request: Request, visitor: Visitor) -> Response:
        entry = await self._entry(request)
        side = entry.delivery.side
        trace = await self._enquiry.trace(side, entry.message_id)
        explanation = await self._explaining.explain(side, entry.message_id)
        certificates = [
            (use, name, self._certificate(name))
            for use, name in (*_certificates(entry), *self._for_transfer(entry))
            if name
        ]
        live = "live" in request.query_params
        return self._frame.render(
            request,
            "endpoint/message_live.html" if live else "endpoint/message.html",
            **({"fragment": True} if live else {}),
            entry=entry,
            metadata=entry.metadata,
            delivery=entry.delivery,
            trace=trace,
            explanation=explanation,
            certificates=certificates,
            links=(await self._enquiry.links(entry)).get(entry.message_id),
            settled=entry.delivery.state in FINAL_STATES or entry.delivery.state is State.TRACED,
            sender=self._organization(entry.metadata.sender_code),
            receiver=self._organization(entry.metadata.receiver_code),
        )

    async def _proof(self, request: Request, visitor: Visitor) -> Response:
        self._may_read(visitor)
        entry = await self._entry(request)
        side = entry.delivery.side
        file = await self._evidence.export(side, entry.message_id)
        data = await asyncio.to_thread(encode_proof, file)
        await self._frame.audit.wrote(visitor.actor, "proof downloaded", entry.message_id, side)
        return _download(data, f"proof-{entry.message_id}.zip", "application/zip")

    async def _document(self, request: Request, visitor: Visitor) -> Response:
        self._may_read(visitor)
        entry = await self._entry(request)
        side = entry.delivery.side
        content = await self._context.store.read(
            lambda work: work.box.content(side, entry.message_id)
        )
        if content is None:
            raise Refusal(
                Rule.MESSAGE_UNKNOWN, "the document is no longer here: retention has removed it"
            )
        await self._frame.audit.wrote(visitor.actor, "document downloaded", entry.message_id, side)
        name = re.sub(r"[^A-Za-z0-9.-]", "-", entry.metadata.ba_message_id or entry.message_id)
        # Whatever it is, it is saved and never shown as a page of this console.
        return _download(content, f"{name}.bin", "application/octet-stream")

    # ------------------------------------------------------------ sending

    async def _send_form(self, request: Request, visitor: Visitor) -> Response:
        return self._sending(request, {}, "", "")

    async def _send(self, request: Request, visitor: Visitor) -> Response:
        given = visitor.form.get("document")
        typed = visitor.form.get("text", "")
        content = await given.read() if isinstance(given, UploadFile) else b""
        if not content and isinstance(typed, str):
            content = typed.encode()
        document = Document(
            visitor.text("receiver"),
            visitor.text("message_type"),
            content,
            visitor.text("ba_message_id"),
            visitor.text("sender_application"),
        )
        try:
            message_id = await self._submission.send(
                visitor.actor,
                document,
                lambda work, sent: _journal(
                    work,
                    self._frame.audit.row(
                        visitor.actor, "document sent", sent, f"to {document.receiver_code}"
                    ),
                ),
            )
        except Refusal as refusal:
            return self._again(request, visitor, refusal, "send")
        return self._frame.back(
            visitor, f"/messages/sent/{message_id}", "The document is accepted and on its way."
        )

    async def _test(self, request: Request, visitor: Visitor) -> Response:
        receiver, type_ = visitor.text("receiver"), visitor.text("message_type")
        try:
            message_id = await self._submission.test_connectivity(
                visitor.actor,
                receiver,
                type_,
                also=lambda work, sent: _journal(
                    work,
                    self._frame.audit.row(
                        visitor.actor, "connectivity tested", sent, f"to {receiver}"
                    ),
                ),
            )
        except Refusal as refusal:
            return self._again(request, visitor, refusal, "test")
        return self._frame.back(
            visitor, f"/messages/sent/{message_id}", "The tracing message is on its way."
        )

    def _again(self, request: Request, visitor: Visitor, refusal: Refusal, which: str) -> Response:
        names = ("receiver", "message_type", "ba_message_id", "sender_application", "text")
        given = {name: visitor.text(name) for name in names}
        details = f" {refusal.details}" if refusal.details else ""
        return self._sending(request, given, which, f"{refusal.message}.{details}")

    def _sending(
        self, request: Request, given: dict[str, str], which: str, problem: str
    ) -> Response:
        now = self._frame.clock.now()
        endpoints = sorted(
            (
                c
                for c in self._context.directory().components(now)
                if c.type is ComponentType.ENDPOINT
            ),
            key=lambda c: c.code,
        )
        return self._frame.render(
            request,
            "endpoint/send.html",
            422 if problem else 200,
            endpoints=endpoints,
            given=given,
            which=which,
            problem=problem,
            limit=self._context.settings.max_content,
        )

    # ------------------------------------------------------------ parts

    async def _entry(self, request: Request) -> BoxEntry:
        text = request.path_params["side"]
        if text not in (Side.SENT, Side.RECEIVED):
            raise Refusal(Rule.RESOURCE_UNKNOWN, "there is no such page")
        return await self._enquiry.entry(Side(text), request.path_params["id"])

    def _may_read(self, visitor: Visitor) -> None:
        needed = self._frame.settings.documents
        if not visitor.role.may(needed):
            raise Refusal(
                Rule.ACCESS_DENIED,
                f"a {visitor.role} may not read documents: it takes the role {needed}",
            )

    def _organization(self, code: str) -> str:
        component = self._context.directory().find(code, self._frame.clock.now())
        return "" if component is None else component.contact.organization

    def _for_transfer(self, entry: BoxEntry) -> list[tuple[str, str]]:
        """A sent message is encrypted at each transfer, with the certificate that is right by then."""
        now = self._frame.clock.now()
        recipient = self._context.directory().find(entry.metadata.receiver_code, now)
        if entry.delivery.side is Side.RECEIVED or recipient is None:
            return []
        chosen = select(recipient.certificates, CertificateKind.ENCRYPTION, now)
        return (
            [] if chosen is None else [("encrypted, at a transfer now, for", chosen.certificate_id)]
        )

    def _certificate(self, name: str) -> object | None:
        now = self._frame.clock.now()
        for component in self._context.directory().components(now):
            for certificate in component.certificates:
                if certificate.certificate_id == name:
                    return shown(certificate)
        return None


def _journal(work: UnitOfWork, row: JournalRow) -> None:
    work.journal.append(row)


def _certificates(entry: BoxEntry) -> list[tuple[str, str]]:
    metadata = entry.metadata
    return [
        ("signed with", processor_value(metadata, SIGNATURE, "Certificate ID")),
        ("encrypted for", processor_value(metadata, ENCRYPTION, "Certificate ID")),
    ]


def _search(request: Request) -> Search:
    query = {name: value.strip() for name, value in request.query_params.items()}
    side, status = query.get("side", ""), query.get("status", "")
    if side not in ("", *Side) or status not in ("", *Status):
        raise Refusal(Rule.USAGE, f"there is no side or status '{clip(side or status)}'")
    until = moment_of(query.get("until", ""), "until")
    if until is not None and len(query["until"]) == 10:
        # A day is meant with its evening.
        until += timedelta(days=1)
    return Search(
        Side(side) if side else None,
        query.get("message_id", ""),
        query.get("conversation_id", ""),
        query.get("ba_message_id", ""),
        ComponentCode(query["peer"]) if query.get("peer") else None,
        query.get("message_type", ""),
        Status(status) if status else None,
        moment_of(query.get("since", ""), "since"),
        until,
        query.get("text", ""),
    )


def _download(data: bytes, name: str, media_type: str) -> Response:
    return Response(
        data,
        media_type=media_type,
        headers={"content-disposition": f'attachment; filename="{name}"'},
    )
