"""Alerts of a node, joined to the parts that run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.node_configuration import NodeConfiguration
from gridpost.assembly.watching import Watched, Watching, watching
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.ports import Clock
from gridpost.services.node import watching as conditions
from gridpost.services.node.directory import NodeDirectory
from gridpost.services.node.synchroniser import NodeSynchroniser
from gridpost.services.node.upkeep import NodeUpkeep
from gridpost.services.operations.journal_follow import RecentTrouble, one_stream
from gridpost.stores.sqlite.node_store import SqliteNodeStore
from gridpost.wire.x509 import read_certificate


def node_watching(
    configuration: NodeConfiguration,
    store: SqliteNodeStore,
    clock: Clock,
    keys: DirectoryKeys,
    directory: NodeDirectory,
    synchroniser: NodeSynchroniser,
    upkeep: NodeUpkeep,
) -> AbstractAsyncContextManager[Watching]:
    rules = configuration.alerts.rules.thresholds()
    recent = RecentTrouble(rules.window)
    upkeep.on_expired = lambda messages: recent.expired_now(clock.now(), messages)

    def authorities() -> Mapping[str, Sequence[Certificate]]:
        roots = [read_certificate(r, CertificateKind.INTEGRATED_CA) for r in keys.roots()]
        return {"the INTEGRATED CA": keys.authorities, "the ROOT CA": roots}

    who = Watched(
        configuration.code,
        configuration.home,
        clock,
        one_stream(
            store.identity.instance,
            lambda after, limit: store.read(lambda unit: unit.journal.listed(after, limit)),
        ),
    )
    more = [
        conditions.certificates(directory, authorities, clock, rules.certificate_expiry),
        conditions.silence(synchroniser, clock, rules.no_synchronisation),
        conditions.waiting(store, clock, rules.queue_age),
    ]
    return watching(who, configuration, recent, more)
