"""What a client of the directory stores comes back, whichever store keeps it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.enrolment import (
    Enrolment,
    EnrolmentEvent,
    EnrolmentState,
    Home,
    advance,
    request_for,
)
from gridpost.core.identifiers import ComponentCode
from gridpost.core.own_entry import OwnEntry, change, confirm
from gridpost.core.ports import DirectoryClientStore, DirectoryClientWork
from gridpost.stores.memory.directory_client import MemoryClientStore
from gridpost.stores.sqlite import SqliteStore
from support.builders import CONTACT, HOME, NOW, broker, certificate, endpoint, path, subsystem
from support.client_store import ClientStore, open_client_store
from support.postgres import PostgresDatabase


class Place:
    """Where a store is opened, and opened again as after a restart."""

    def __init__(self, folder: Path | None, database: PostgresDatabase | None = None) -> None:
        self._folder = folder
        self._database = database
        self._memory = MemoryClientStore()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[DirectoryClientStore]:
        store: SqliteStore | ClientStore
        if self._database is not None:
            store = open_client_store(self._database.settings(), "E1")
        elif self._folder is not None:
            store = SqliteStore.open(self._folder, "E1")
        else:
            yield self._memory
            return
        try:
            yield store
        finally:
            await store.close()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "postgres":
        return Place(None, request.getfixturevalue("postgres"))
    return Place(None if request.param == "memory" else tmp_path / "store")


FIRST = subsystem(
    endpoint("E1", path("A*", senders=["X"]), path("B", "DIRECT", end=NOW)),
    broker("B1", components=("E1",), message_types=("A", "B*")),
    valid_until=NOW + timedelta(hours=1),
)
SECOND = subsystem(endpoint("E2", home="CD-2"), home="CD-2", valid_until=NOW)
PREPARED = Enrolment(
    EnrolmentState.PREPARED,
    Home(
        HOME, ("https://a", "https://b"), (certificate(CertificateKind.INTEGRATED_CA),), (b"root",)
    ),
    request_for(
        ComponentCode("E1"),
        CONTACT,
        {CertificateKind.AUTHENTICATION: b"key"},
        (certificate(CertificateKind.SIGNING),),
    ),
    extension=True,
    connect_with=certificate(CertificateKind.AUTHENTICATION),
)


async def test_nothing_is_there_at_first(place: Place) -> None:
    async with place.open() as store:
        assert await store.read(lambda w: list(w.directory_copy.load())) == []
        assert await store.read(lambda w: w.own_entry.load()) is None
        assert await store.read(lambda w: w.enrolment.load()) is None


async def test_a_copy_comes_back_after_a_restart_and_in_its_order(place: Place) -> None:
    async with place.open() as store:
        await store.run(lambda w: w.directory_copy.save([SECOND, FIRST], {"CD-1", "CD-2"}))
    async with place.open() as store:
        assert await store.read(lambda w: list(w.directory_copy.load())) == [SECOND, FIRST]
        later = replace(SECOND, valid_until=NOW + timedelta(days=1))
        await store.run(lambda w: w.directory_copy.save([FIRST, later], ()))
        assert await store.read(lambda w: list(w.directory_copy.load())) == [FIRST, later]
        other = subsystem(endpoint("E9"), valid_until=NOW)
        await store.run(lambda w: w.directory_copy.save([other], {"CD-1"}))
    async with place.open() as store:
        assert await store.read(lambda w: list(w.directory_copy.load())) == [other]


async def test_a_content_that_lost_a_duplicate_is_written_though_its_id_is_the_same(
    place: Place,
) -> None:
    async with place.open() as store:
        await store.run(lambda w: w.directory_copy.save([FIRST], {"CD-1"}))
        less = replace(FIRST, components=FIRST.components[:1])
        await store.run(lambda w: w.directory_copy.save([less], {"CD-1"}))
        assert await store.read(lambda w: list(w.directory_copy.load())) == [less]


async def test_a_copy_is_replaced_as_a_whole_or_not_at_all(place: Place) -> None:
    def fails(work: DirectoryClientWork) -> None:
        work.directory_copy.save([SECOND], {"CD-1", "CD-2"})
        raise ValueError("in the middle")

    async with place.open() as store:
        await store.run(lambda w: w.directory_copy.save([FIRST], {"CD-1"}))
        with pytest.raises(ValueError, match="in the middle"):
            await store.run(fails)
        assert await store.read(lambda w: list(w.directory_copy.load())) == [FIRST]


async def test_the_own_entry_comes_back_with_its_revisions(place: Place) -> None:
    entry = change(None, endpoint("E1", path("A")))
    entry = confirm(change(entry, endpoint("E1", path("B"))), 1)
    async with place.open() as store:
        await store.run(lambda w: w.own_entry.save(OwnEntry(endpoint("E1"))))
        await store.run(lambda w: w.own_entry.save(entry))
    async with place.open() as store:
        found = await store.read(lambda w: w.own_entry.load())
    assert found == entry
    assert found is not None
    assert found.pending


async def test_an_enrolment_comes_back_in_every_state(place: Place) -> None:
    submitted = advance(PREPARED, EnrolmentEvent.PENDING, registration_id="7")
    approved = advance(
        submitted,
        EnrolmentEvent.APPROVE,
        certificates=(
            certificate(CertificateKind.AUTHENTICATION),
            certificate(CertificateKind.INTEGRATED_CA, "CD-1"),
        ),
    )
    rejected = advance(submitted, EnrolmentEvent.REJECT, reason="no \u00fc\n")
    for enrolment in (PREPARED, submitted, approved, rejected):
        async with place.open() as store:
            await store.run(lambda w, e=enrolment: w.enrolment.save(e))  # type: ignore[misc]
        async with place.open() as store:
            assert await store.read(lambda w: w.enrolment.load()) == enrolment
