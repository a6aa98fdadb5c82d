"""Private keys in the database: shared by processes, and worth nothing without the passphrase."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.keys.ring import KeptKeyring, key_id
from gridpost.stores.postgres.endpoint import PostgresEndpointStore
from gridpost.stores.postgres.keys import PostgresKeyring
from support.post import keys_of
from support.postgres import PostgresDatabase

PASSPHRASE = b"known to all processes"


@pytest.fixture
async def database(postgres: PostgresDatabase) -> PostgresDatabase:
    store = PostgresEndpointStore.open(postgres.settings(), "E1")
    await store.close()
    return postgres


def _ring(database: PostgresDatabase, passphrase: bytes = PASSPHRASE) -> PostgresKeyring:
    return PostgresKeyring(database.settings(), passphrase)


def _fill(ring: KeptKeyring) -> bytes:
    """A key made elsewhere, with the certificate for signing that was issued for it."""
    made, certificates = keys_of("E1")
    (certificate,) = (c for c in certificates if c.kind is CertificateKind.SIGNING)
    (spki,) = (spki for spki, key in made._keys.items() if made._key_of(certificate) is key)
    assert ring.import_key(made.export_key(spki)) == spki
    ring.install(certificate)
    return spki


async def test_another_process_has_what_one_was_given(database: PostgresDatabase) -> None:
    first, second = _ring(database), _ring(database)
    spki = _fill(first)
    assert second.certificates() == ()
    second.reload()
    assert second.certificates() == first.certificates()
    assert second.export_key(spki) == first.export_key(spki)
    (signer,) = second.signers()
    assert await signer.sign(b"text") == await first.signers()[0].sign(b"text")
    assert _ring(database).certificates() == first.certificates()


async def test_a_wrong_passphrase_is_refused(database: PostgresDatabase) -> None:
    _ring(database)
    with pytest.raises(Refusal) as refused:
        _ring(database, b"a guess")
    assert refused.value.rule is Rule.BAD_KEY


async def test_the_database_holds_no_key_that_can_be_read(database: PostgresDatabase) -> None:
    ring = _ring(database)
    der = ring.export_key(_fill(ring))
    with database.connect() as connection:
        rows = connection.execute("SELECT sealed FROM gridpost.key").fetchall()
    assert len(rows) == 1
    sealed = bytes(rows[0][0])  # type: ignore[call-overload]
    assert all(der[at : at + 16] not in sealed for at in range(0, len(der) - 16, 16))


async def test_keys_that_somebody_exchanged_are_refused(database: PostgresDatabase) -> None:
    ring = _ring(database)
    one, two = key_id(ring.create_key()), key_id(ring.create_key())
    with database.connect() as connection:
        connection.execute(
            "UPDATE gridpost.key SET sealed = (SELECT sealed FROM gridpost.key WHERE name = %s) "
            "WHERE name = %s",
            (one, two),
        )
    with pytest.raises(Refusal) as refused:
        _ring(database)
    assert refused.value.rule is Rule.BAD_KEY


def test_a_common_folder_is_read_again(tmp_path: Path) -> None:
    first, second = FileKeyring(tmp_path / "keys"), FileKeyring(tmp_path / "keys")
    spki = _fill(first)
    second.reload()
    assert second.certificates() == first.certificates()
    assert second.export_key(spki) == first.export_key(spki)
