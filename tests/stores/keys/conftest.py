"""Key stores under test, each with the keys of the endpoint E1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.stores.keys.off_loop import key_pool
from gridpost.stores.keys.pkcs11 import TokenAccess, TokenKeyring
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.wire.seal.registry import PKCS1_V1_5
from support.keyrings import ALL_PADDINGS, Subject, renewed
from support.pki import shared_endpoint
from support.token import make_token, put_keys


@pytest.fixture(scope="session")
def token(tmp_path_factory: pytest.TempPathFactory) -> TokenAccess:
    access = make_token(tmp_path_factory.mktemp("softhsm"))
    both = (shared_endpoint("E1"), renewed())
    put_keys(access, (key for component in both for key in component.keys.values()))
    return access


def _fill(ring: MemoryKeyring | FileKeyring) -> None:
    for component in (shared_endpoint("E1"), renewed()):
        for certificate in component.certificates:
            ring.import_key(to_pkcs8(component.keys[certificate.kind]))
            ring.install(certificate)


def _memory(_request: pytest.FixtureRequest) -> Iterator[Subject]:
    ring = MemoryKeyring()
    _fill(ring)
    yield Subject(ring, ALL_PADDINGS)


@pytest.fixture(scope="session")
def key_homes(tmp_path_factory: pytest.TempPathFactory) -> dict[bytes | None, Path]:
    """By passphrase. Deriving a key from one takes its time, on purpose."""
    homes = {}
    for passphrase in (None, b"a passphrase"):
        homes[passphrase] = tmp_path_factory.mktemp("keyring") / "keys"
        _fill(FileKeyring(homes[passphrase], passphrase))
    return homes


@pytest.fixture(scope="session")
def encrypted(key_homes: dict[bytes | None, Path]) -> FileKeyring:
    return FileKeyring(key_homes[b"a passphrase"], b"a passphrase")


def _files(request: pytest.FixtureRequest) -> Iterator[Subject]:
    home = request.getfixturevalue("key_homes")[None]
    with key_pool(2) as pool:
        yield Subject(FileKeyring(home, pool=pool), ALL_PADDINGS)


def _encrypted_files(request: pytest.FixtureRequest) -> Iterator[Subject]:
    yield Subject(request.getfixturevalue("encrypted"), ALL_PADDINGS)


def _token(request: pytest.FixtureRequest) -> Iterator[Subject]:
    access: TokenAccess = request.getfixturevalue("token")
    certificates = [*shared_endpoint("E1").certificates, *renewed().certificates]
    # SoftHSM 2.6 has OAEP with SHA-1 only.
    ring = TokenKeyring(access, certificates, [PKCS1_V1_5])
    yield Subject(ring, (PKCS1_V1_5,))
    ring.close()


STORES: dict[str, Callable[[pytest.FixtureRequest], Iterator[Subject]]] = {
    "memory": _memory,
    "files": _files,
    "encrypted files": _encrypted_files,
    "token": _token,
}


@pytest.fixture(params=STORES)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    yield from STORES[request.param](request)
