"""Another edge of a broker that is registered already: the same code and keys, a journal of its own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from gridpost.assembly.broker_configuration import BrokerConfiguration, read_broker_configuration
from gridpost.assembly.clock import SystemClock
from gridpost.core.enrolment import Enrolment, EnrolmentState
from gridpost.core.own_entry import OwnEntry
from gridpost.core.ports import DirectoryClientWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Subsystem
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.sqlite.queues import QueueClientStore, SqliteQueueStore
from gridpost.wire.x509 import public_key, public_key_bytes

Copied = tuple[Enrolment | None, OwnEntry | None, tuple[Subsystem, ...]]


def join(file: Path, home: Path) -> dict[str, Any]:
    """Make the folder of the configuration an edge like the one whose folder is `home`."""
    return asyncio.run(_join(read_broker_configuration(file), home))


async def _join(configuration: BrokerConfiguration, home: Path) -> dict[str, Any]:
    if configuration.store.kind == "sqlite":
        raise Refusal(Rule.USAGE, "edges share a store: say where, in the section store")
    if not (home / "store").is_dir():
        raise Refusal(Rule.USAGE, f"{home} is not the folder of a broker")
    if (configuration.home / "store").exists():
        raise Refusal(
            Rule.USAGE, f"{configuration.home} is in use: an edge begins with a new folder"
        )
    configuration.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    known = FileKeyring(home / "keys", configuration.passphrase())
    clock, code = SystemClock(), configuration.code
    first = SqliteQueueStore.open(home / "store", code, clock)
    try:
        copied = await QueueClientStore(first).read(_everything)
    finally:
        await first.close()
    enrolment = copied[0]
    if enrolment is None or enrolment.state is not EnrolmentState.INSTALLED:
        raise Refusal(Rule.NOT_ENROLLED, f"the broker in {home} is not registered yet")
    keys = FileKeyring(configuration.home / "keys", configuration.passphrase())
    for certificate in known.certificates():
        keys.import_key(known.export_key(public_key_bytes(public_key(certificate.der))))
        keys.install(certificate)
    second = SqliteQueueStore.open(configuration.home / "store", code, clock)
    try:
        await QueueClientStore(second).run(lambda work: _take(work, copied))
    finally:
        await second.close()
    return {
        "code": code,
        "instance": second.identity.instance,
        "certificates": len(keys.certificates()),
    }


def _everything(work: DirectoryClientWork) -> Copied:
    return work.enrolment.load(), work.own_entry.load(), tuple(work.directory_copy.load())


def _take(work: DirectoryClientWork, copied: Copied) -> None:
    enrolment, own_entry, subsystems = copied
    assert enrolment is not None
    work.enrolment.save(enrolment)
    if own_entry is not None:
        work.own_entry.save(own_entry)
    work.directory_copy.save(subsystems, [s.component_directory for s in subsystems])
