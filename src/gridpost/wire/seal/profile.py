"""What one peer may use in the messages it sends us, and what we use in ours to it.

The metadata of a message chooses among what is enabled here; it can never enable anything
(REPAIRS 6.5.3). CBC and PKCS#1 v1.5 are off until an operator turns them on for a peer.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal.registry import (
    AES_256,
    GCM,
    OAEP_SHA256,
    OAEP_SHA256_MGF1_SHA1,
    SHA_512,
)


@dataclass(frozen=True, slots=True)
class Suite:
    """What is sent. `announce` adds the entries `Mode` and `Padding`, unknown to Table 9."""

    signature: str = SHA_512
    cipher: str = AES_256
    mode: str = GCM
    padding: str = OAEP_SHA256
    announce: bool = True


@dataclass(frozen=True, slots=True)
class Profile:
    """How messages of one peer are read, and how messages to it are written."""

    signatures: frozenset[str] = frozenset({SHA_512})
    ciphers: frozenset[str] = frozenset({AES_256})
    modes: frozenset[str] = frozenset({GCM})
    paddings: frozenset[str] = frozenset({OAEP_SHA256, OAEP_SHA256_MGF1_SHA1})
    default_mode: str = GCM
    """Assumed when the peer sends no `Mode`."""
    default_padding: str = OAEP_SHA256
    """Assumed when the peer sends no `Padding`."""
    accept_signed_manifest: bool = False
    """Take a SignatureValue made directly over the manifest (REPAIRS 6.5.4 vs XML-DSig)."""
    send: Suite = Suite()

    def __post_init__(self) -> None:
        if self.default_mode not in self.modes or self.default_padding not in self.paddings:
            raise Refusal(
                Rule.INCONSISTENT_CONFIGURATION,
                "the mode and padding assumed of a peer must be among those received from it",
            )

    def check_received(self, enabled: frozenset[str], what: str, name: str) -> None:
        if name not in enabled:
            raise Refusal(
                Rule.SEAL_PROFILE_NOT_ALLOWED,
                f"the {what} '{clip(name)}' is not enabled for this sender",
            )


DEFAULT = Profile()
