"""What an endpoint can have wrong besides what every component can: messages that wait too long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from gridpost.core.alerts import AlertKind, Condition
from gridpost.core.delivery import FINAL_STATES, Side, Status
from gridpost.core.message_box import Search
from gridpost.core.ports import UnitOfWork
from gridpost.services.endpoint.context import EndpointContext
from gridpost.services.endpoint.old_network.network import NOT_ASKED, OldNetwork
from gridpost.services.operations.alerting import Observer

_LOOKED_AT = 200
_SAID = {
    Status.ACCEPTED: "are not delivered",
    Status.DELIVERED: "are delivered, but no application of the recipient has taken them,",
}


def waiting(context: EndpointContext, limit: timedelta) -> Observer:
    """One alert for each partner: many messages wait for one reason."""

    async def observe() -> Sequence[Condition]:
        until = context.clock.now() - limit
        found = []
        for status, said in _SAID.items():
            search = Search(side=Side.SENT, status=status, until=until)

            def look(work: UnitOfWork, search: Search = search) -> list[tuple[str, str]]:
                entries = work.box.search(search, _LOOKED_AT).entries
                # A tracing message that was delivered waits for nothing more.
                return [
                    (entry.metadata.receiver_code, entry.message_id)
                    for entry in entries
                    if entry.delivery.state not in FINAL_STATES
                ]

            partners: dict[str, list[str]] = {}
            for partner, message_id in await context.store.read(look):
                partners.setdefault(partner, []).append(message_id)
            for partner, ids in partners.items():
                many = (
                    f"{len(ids)} messages"
                    if len(ids) < _LOOKED_AT
                    else f"{len(ids)} or more messages"
                )
                text = (
                    f"{many} to {partner} {said} after {_words(limit)}: gridpost explain {ids[-1]}"
                )
                found.append(
                    Condition(AlertKind.MESSAGE_WAITING, f"{partner} {status.value}", text)
                )
        return found

    return observe


def home_node(old: OldNetwork, since: datetime, limit: timedelta) -> Observer:
    """MADES 1.1: without its home node an endpoint gets nothing, and learns nothing of others."""

    async def observe() -> Sequence[Condition]:
        last, node = old.answered_at or since, old.settings.node
        silent = old.problem not in ("", NOT_ASKED)
        if not silent or old.context.clock.now() - last <= limit:
            return []
        text = (
            f"the home node {node} has not answered since {last:%Y-%m-%d %H:%M:%S} UTC: "
            f"{old.problem}"
        )
        return [Condition(AlertKind.NO_SYNCHRONISATION, node, text)]

    return observe


def _words(limit: timedelta) -> str:
    minutes = limit.total_seconds() / 60
    return f"{minutes:g} minutes" if minutes < 120 else f"{minutes / 60:g} hours"
