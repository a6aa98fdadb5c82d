"""A key store with something in it, for the contract that all of them keep."""

from __future__ import annotations

from dataclasses import dataclass

from gridpost.core.ports import Keyring
from gridpost.wire.seal.registry import OAEP_SHA256, OAEP_SHA256_MGF1_SHA1, PKCS1_V1_5
from support.pki import TestComponent, shared_pki

ALL_PADDINGS = (OAEP_SHA256, OAEP_SHA256_MGF1_SHA1, PKCS1_V1_5)


def renewed() -> TestComponent:
    """E1 with the keys of its next certificates."""
    return shared_pki().component("E1", key_name="E1 renewed")


@dataclass
class Subject:
    """A store with the old and the new certificates of E1, and the paddings it can open."""

    keyring: Keyring
    paddings: tuple[str, ...]
