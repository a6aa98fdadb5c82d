"""One contract for the books of a component-directory, kept in memory, SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.directory_ports import RegistryStore, RegistryUnit
from gridpost.core.identifiers import ComponentCode
from gridpost.core.journal import AdministrationRow
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import (
    PublicKey,
    Registration,
    RegistrationRequest,
    RegistrationStatus,
)
from gridpost.core.registry_office import Invitation, IssuedCertificate
from gridpost.stores.memory.directory import MemoryDirectoryStore
from gridpost.stores.postgres.directory import open_directory_store
from gridpost.stores.sqlite import SqliteStore
from support.builders import CONTACT, NOW, broker, certificate, endpoint, path, subsystem
from support.postgres import PostgresDatabase

E1 = ComponentCode("E1")
DAY = timedelta(days=1)


class Place:
    """Where the books are, also after the directory has stopped."""

    def __init__(self, open_store: Callable[[], RegistryStore], durable: bool = True) -> None:
        self.open = open_store
        self.durable = durable


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "memory":
        return Place(MemoryDirectoryStore, durable=False)
    if request.param == "sqlite":
        return Place(lambda: SqliteStore.open(tmp_path / "store", "CD-1"))
    database: PostgresDatabase = request.getfixturevalue("postgres")
    return Place(
        lambda: open_directory_store(database.settings(take_over=timedelta(seconds=1)), "CD-1")
    )


@pytest.fixture
async def store(place: Place) -> AsyncIterator[RegistryStore]:
    opened = place.open()
    yield opened
    await opened.close()


def registration(number: int, code: str = "E1") -> Registration:
    return Registration(
        f"registration-{number}",
        RegistrationRequest(
            CONTACT,
            ComponentCode(code),
            (PublicKey(CertificateKind.AUTHENTICATION, b"key"),),
            (certificate(CertificateKind.SIGNING, code),),
        ),
        RegistrationStatus.PENDING,
        NOW,
        b"fingerprint",
        extension=bool(number % 2),
    )


async def test_registrations_are_found_by_id_code_and_status(store: RegistryStore) -> None:
    first, second, other = registration(1), registration(2), registration(3, "E2")

    def file(unit: RegistryUnit) -> None:
        for one in (first, second, other):
            unit.registrations.add(one)
        unit.registrations.save(
            replace(
                second,
                status=RegistrationStatus.APPROVED,
                decided_at=NOW,
                decided_by="alice",
                issued=(certificate(CertificateKind.AUTHENTICATION),),
            )
        )

    await store.run(file)

    def look(unit: RegistryUnit) -> None:
        books = unit.registrations
        assert books.find("registration-1") == first
        assert books.find("nothing") is None
        assert [r.registration_id for r in books.of_component("E1")] == [
            "registration-2",
            "registration-1",
        ]
        assert books.of_component("E1")[0].issued
        assert [r.registration_id for r in books.search(None, 2)] == [
            "registration-3",
            "registration-2",
        ]
        assert books.search(RegistrationStatus.PENDING, 10) == [other, first]
        assert books.count(RegistrationStatus.PENDING) == 2

    await store.read(look)


async def test_a_registration_is_added_once_and_saved_only_after_that(
    store: RegistryStore,
) -> None:
    await store.run(lambda unit: unit.registrations.add(registration(1)))
    with pytest.raises(ValueError, match="already"):
        await store.run(lambda unit: unit.registrations.add(registration(1)))
    with pytest.raises(KeyError):
        await store.run(lambda unit: unit.registrations.save(registration(2)))


async def test_invitations_are_kept_and_marked(store: RegistryStore) -> None:
    invitation = Invitation(b"mark", E1, NOW, "alice", NOW + DAY)
    used = replace(invitation, registration_id="registration-1", withdrawn_at=NOW)
    await store.run(lambda unit: unit.invitations.add(invitation))
    assert await store.read(lambda unit: unit.invitations.find(b"mark")) == invitation
    await store.run(lambda unit: unit.invitations.save(used))
    assert await store.read(lambda unit: unit.invitations.of_component("E1")) == [used]
    assert await store.read(lambda unit: unit.invitations.find(b"other")) is None
    with pytest.raises(ValueError, match="already"):
        await store.run(lambda unit: unit.invitations.add(invitation))


async def test_the_ledger_knows_keys_and_marks_revoked_certificates_once(
    store: RegistryStore,
) -> None:
    lines = [
        IssuedCertificate(b"1", b"key", E1, "SIGNING", "id 1", NOW),
        IssuedCertificate(b"2", b"key 2", E1, "AUTHENTICATION", "id 2", NOW),
        IssuedCertificate(b"3", b"key", ComponentCode("E2"), "SIGNING", "id 3", NOW),
    ]

    def record(unit: RegistryUnit) -> None:
        for line in lines:
            unit.ledger.record(line)

    await store.run(record)
    await store.run(lambda unit: unit.ledger.record(replace(lines[0], code=ComponentCode("E9"))))
    assert await store.read(lambda unit: unit.ledger.find(b"1")) == lines[0]
    of_key = await store.read(lambda unit: unit.ledger.of_key(b"key"))
    assert {line.fingerprint for line in of_key} == {b"1", b"3"}
    marked = await store.run(lambda unit: unit.ledger.revoke("E1", NOW))
    assert {line.fingerprint for line in marked} == {b"1", b"2"}
    assert {line.revoked_at for line in marked} == {NOW}
    assert await store.run(lambda unit: unit.ledger.revoke("E1", NOW + DAY)) == []


async def test_entries_and_replicas_read_back_equal_and_count_their_changes(
    store: RegistryStore,
) -> None:
    full = replace(
        endpoint("E1", path("BP1", senders=["E2"]), path("*", "DIRECT", end=NOW + DAY)),
        urls=("amqps://second.example", "amqps://first.example"),
    )
    closed = replace(broker("B1"), restriction=Restriction(frozenset({E1})))
    foreign = subsystem(endpoint("E9", home="CD-9"), home="CD-9", valid_until=NOW + DAY)
    other = subsystem(endpoint("E8", home="CD-8"), home="CD-8", valid_until=NOW)
    start = await store.read(lambda unit: unit.entries.revision())

    def fill(unit: RegistryUnit) -> None:
        unit.entries.put(full)
        unit.entries.put(closed)
        unit.entries.put_replica(foreign)
        unit.entries.put_replica(other)

    await store.run(fill)
    assert await store.read(lambda unit: unit.entries.own()) == [closed, full]
    assert await store.read(lambda unit: unit.entries.find("E1")) == full
    assert await store.read(lambda unit: unit.entries.replicas()) == [foreign, other]
    longer = replace(foreign, valid_until=NOW + 2 * DAY)
    changed = subsystem(endpoint("E7", home="CD-8"), home="CD-8", valid_until=NOW)
    before = await store.read(lambda unit: unit.entries.revision())
    assert before > start

    def renew(unit: RegistryUnit) -> None:
        unit.entries.put_replica(longer)
        unit.entries.put_replica(changed)

    await store.run(renew)
    # The order stays that of the first synchronisation: duplicates are judged by it.
    assert await store.read(lambda unit: unit.entries.replicas()) == [longer, changed]
    assert await store.read(lambda unit: unit.entries.revision()) > before

    def clear(unit: RegistryUnit) -> None:
        unit.entries.remove("B1")
        unit.entries.drop_replica(ComponentCode("CD-9"))
        unit.entries.drop_replica(ComponentCode("CD-0"))

    await store.run(clear)
    assert await store.read(lambda unit: unit.entries.own()) == [full]
    assert await store.read(lambda unit: unit.entries.replicas()) == [changed]
    with pytest.raises(KeyError):
        await store.run(lambda unit: unit.entries.remove("B1"))


async def test_texts_that_no_database_holds_are_simply_not_found(store: RegistryStore) -> None:
    def look(unit: RegistryUnit) -> None:
        for strange in ("E1\0", "..\0/E1"):
            assert unit.entries.find(strange) is None
            assert unit.registrations.find(strange) is None
            assert unit.registrations.of_component(strange) == []
            assert unit.invitations.of_component(strange) == []

    await store.run(look)
    with pytest.raises(KeyError):
        await store.run(lambda unit: unit.entries.remove("E1\0"))


async def test_a_second_process_does_not_get_the_books(place: Place, store: RegistryStore) -> None:
    if not place.durable:
        pytest.skip("memory belongs to one process anyway")
    with pytest.raises(Refusal) as refused:
        place.open()
    assert refused.value.rule is Rule.STORE_IN_USE


@pytest.mark.req("503-7.1-b", component="component-directory")
async def test_what_belongs_together_is_undone_together(store: RegistryStore) -> None:
    def half(unit: RegistryUnit) -> None:
        unit.entries.put(endpoint("E1"))
        unit.registrations.add(registration(1))
        unit.ledger.record(IssuedCertificate(b"1", b"key", E1, "SIGNING", "id", NOW))
        unit.journal.append(AdministrationRow(NOW, "alice", "registration approved"))
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        await store.run(half)

    def look(unit: RegistryUnit) -> None:
        assert unit.entries.own() == []
        assert unit.entries.revision() == 0
        assert unit.registrations.search(None, 10) == []
        assert unit.ledger.find(b"1") is None
        assert unit.journal.read(0, 10) == []

    await store.read(look)


@pytest.mark.req("503-10-c", component="component-directory")
async def test_the_journal_is_there_after_a_restart_and_is_pruned_by_age(place: Place) -> None:
    if not place.durable:
        pytest.skip("memory forgets")
    store = place.open()
    rows = [AdministrationRow(NOW - n * DAY, "alice", f"action {n}") for n in (9, 5, 1)]
    for row in rows:
        await store.run(lambda unit, row=row: unit.journal.append(row))
    await store.close()
    store = place.open()
    kept = await store.read(lambda unit: unit.journal.read(0, 10))
    assert [recorded.row for recorded in kept] == rows
    assert await store.run(lambda unit: unit.journal.prune(NOW, 6 * DAY)) == 1
    kept = await store.read(lambda unit: unit.journal.read(0, 10))
    assert [recorded.row for recorded in kept] == rows[1:]
    await store.close()
