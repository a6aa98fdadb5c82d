"""What a node can have wrong: certificates that end, nodes that are silent, endpoints that do not come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from gridpost.core.alerts import AlertKind, Condition
from gridpost.core.certificate import Certificate, expiring
from gridpost.core.node_ports import NodeStore
from gridpost.core.ports import Clock
from gridpost.services.node.directory import NodeDirectory
from gridpost.services.node.synchroniser import NodeSynchroniser
from gridpost.services.operations.alerting import Observer
from gridpost.services.operations.observers import expiry


def certificates(
    directory: NodeDirectory,
    authorities: Callable[[], Mapping[str, Sequence[Certificate]]],
    clock: Clock,
    limit: timedelta,
) -> Observer:
    """Of this node and its registered endpoints, and those that they come from, by name."""

    async def observe() -> Sequence[Condition]:
        now = clock.now()
        # A revoked one ends nothing when it ends.
        held = {
            c.code: [k.certificate for k in c.certificates if not k.revoked]
            for c in directory.own()
        }
        return [
            expiry(
                f"{owner} {certificate.kind} {certificate.certificate_id}",
                f"the {certificate.kind} certificate {certificate.certificate_id} of {owner}",
                certificate.not_after,
                now,
            )
            for owner, theirs in (*held.items(), *authorities().items())
            for certificate in expiring(theirs, now, limit)
        ]

    return observe


def silence(synchroniser: NodeSynchroniser, clock: Clock, limit: timedelta) -> Observer:
    """Nodes of the list that this one does not hear from, with what it was told instead."""
    started = clock.now()

    async def observe() -> Sequence[Condition]:
        now = clock.now()
        found = []
        for node in await synchroniser.nodes():
            last = max(node.last_success or started, started)
            if now - last > limit:
                told = f": {node.problem}" if node.problem else ""
                text = f"the node {node.code} was not heard since {last:%Y-%m-%d %H:%M} UTC{told}"
                found.append(Condition(AlertKind.NO_SYNCHRONISATION, node.code, text))
        return found

    return observe


def waiting(store: NodeStore, clock: Clock, limit: timedelta) -> Observer:
    async def observe() -> Sequence[Condition]:
        now = clock.now()
        return [
            Condition(
                AlertKind.QUEUE_AGE,
                code,
                f"the oldest of {count} messages for {code} waits since "
                f"{since:%Y-%m-%d %H:%M:%S} UTC",
            )
            for code, (count, since) in (await store.read(lambda unit: unit.waiting())).items()
            if now - since > limit
        ]

    return observe
