"""Configuration keys of the seal: which algorithms are received from a peer, and which are sent to it.

503 cl. 9.3: a new algorithm is first received everywhere, then sent, endpoint by endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from gridpost.core.identifiers import component_code
from gridpost.core.refusal import Refusal
from gridpost.wire.seal.profile import DEFAULT, Profile, Suite
from gridpost.wire.seal.registry import CBC, PKCS1_V1_5, STANDARD

EVERYBODY = "*"


def _peer(code: str) -> str:
    try:
        return code if code == EVERYBODY else component_code(code)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None


Peer = Annotated[str, AfterValidator(_peer)]
Names = Annotated[tuple[str, ...], Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SendSection(_Section):
    signature: str = DEFAULT.send.signature
    cipher: str = DEFAULT.send.cipher
    mode: str = DEFAULT.send.mode
    padding: str = DEFAULT.send.padding
    announce: bool = DEFAULT.send.announce
    """Write `Mode` and `Padding` into the metadata, which Table 9 does not know."""


class SealSection(_Section):
    """What is received from a peer; `send` says, apart from that, what is sent to it."""

    signatures: Names = tuple(sorted(DEFAULT.signatures))
    ciphers: Names = tuple(sorted(DEFAULT.ciphers))
    modes: Names = tuple(sorted(DEFAULT.modes))
    paddings: Names = tuple(sorted(DEFAULT.paddings))
    default_mode: str = DEFAULT.default_mode
    """Assumed when the peer names none."""
    default_padding: str = DEFAULT.default_padding
    accept_signed_manifest: bool = DEFAULT.accept_signed_manifest
    send: SendSection = SendSection()

    @model_validator(mode="after")
    def _installed(self) -> SealSection:
        try:
            for name in (*self.signatures, self.send.signature):
                STANDARD.signature(name)
            for name in (*self.paddings, self.send.padding):
                STANDARD.padding(name)
            for cipher in self.ciphers:
                for mode in self.modes:
                    STANDARD.cipher(cipher, mode)
            STANDARD.cipher(self.send.cipher, self.send.mode)
        except Refusal as refusal:
            raise ValueError(f"{refusal.message}; installed are {_installed()}") from None
        try:
            self.profile()
        except Refusal as refusal:
            raise ValueError(refusal.message) from None
        return self

    def profile(self) -> Profile:
        return Profile(
            frozenset(self.signatures),
            frozenset(self.ciphers),
            frozenset(self.modes),
            frozenset(self.paddings),
            self.default_mode,
            self.default_padding,
            self.accept_signed_manifest,
            Suite(**self.send.model_dump()),
        )


def _installed() -> str:
    ciphers = (" ".join(name) for name in STANDARD.ciphers)
    return ", ".join([*STANDARD.signatures, *ciphers, *STANDARD.paddings])


def seal_doubts(sections: Mapping[str, SealSection]) -> list[str]:
    """What is allowed and weaker than it could be (divergences, encryption)."""
    found = []
    for peer, section in sections.items():
        if CBC in (*section.modes, section.send.mode):
            found.append(
                f"seals.{peer} allows {CBC}: a changed body is noticed by the signature alone"
            )
        if PKCS1_V1_5 in (*section.paddings, section.send.padding):
            found.append(f"seals.{peer} allows {PKCS1_V1_5}: use OAEP as soon as the peer can")
        if section.accept_signed_manifest:
            found.append(f"seals.{peer} accepts signatures that are no XML-DSig")
    return found
