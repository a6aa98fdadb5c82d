"""Handlers that a bus under test imports by the name of this module."""

from __future__ import annotations

from gridpost.core.bus import BusUnit
from gridpost.core.refusal import Refusal, Rule
from gridpost.envelope import EventMessage, Identifier, RequestMessage, complete
from gridpost.services.bus.handlers import Answer, Series
from gridpost.services.bus.service import BusService

CALLS: list[tuple[str, str]] = []
"""Verb and MessageID of every request for Notes that was executed, in this process."""
VERBS = ("create", "change", "cancel", "close", "delete", "execute")


def register(service: BusService) -> None:
    for verb in VERBS:

        @service.handles(verb, "Notes")
        def done(request: RequestMessage, unit: BusUnit) -> object:
            CALLS.append((request.header.verb, request.header.message_id or ""))
            text = request.payload.content[0].text if request.payload else ""
            if "refuse" in text:
                raise Refusal(Rule.OBJECT_EXISTS, "there is such a note")
            return [Identifier("note-1")] if request.header.verb == "create" else None

    @service.handles("get", "Notes")
    def get(request: RequestMessage, unit: BusUnit) -> object:
        ids = request.request.ids if request.request else ()
        if any(i.value == "nothing" for i in ids):
            raise Refusal(Rule.OBJECT_UNKNOWN, "there is no such note")
        inner = "".join(f"<n:Note><n:mRID>{i.value}</n:mRID></n:Note>" for i in ids)
        return f'<n:Notes xmlns:n="http://iec.ch/TC57/2011/Notes#">{inner}</n:Notes>'

    @service.handles("get", "Parts")
    def parts(request: RequestMessage, unit: BusUnit) -> object:
        return Series(tuple(Answer(complete([Identifier(n)])) for n in "abc"))

    @service.listens("changed", "Others")
    def heard(event: EventMessage, unit: BusUnit) -> None:
        CALLS.append((event.header.verb, event.header.message_id or ""))
