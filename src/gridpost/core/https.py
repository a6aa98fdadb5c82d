"""An exchange over HTTPS as services see it: what a component shows of itself, asks and is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Authorise = Callable[[Sequence[bytes]], None]
"""Judges a peer by its verified chain (DER, leaf first, without the root); raises a Refusal."""


@dataclass(frozen=True, slots=True)
class TlsCredentials:
    """What a component shows to its peers and whom it trusts (503 cl. 8.4.1)."""

    chain: tuple[bytes, ...]
    """Its own authentication certificate, then the INTEGRATED CA that issued it (DER)."""
    private_key: bytes = field(repr=False)
    """PKCS#8, DER."""
    roots: tuple[bytes, ...]
    """Several while the ROOT CA is renewed (503 cl. 8.5)."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    body: bytes | tuple[bytes | memoryview, ...] = b""
    """Or its pieces in order: a large document need not be copied to stand with its envelope."""
    media_type: str = "application/xml"

    @property
    def repeatable(self) -> bool:
        """Does doing it twice change nothing more than doing it once?"""
        return self.method in ("GET", "PUT")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    pieces: tuple[bytes, ...]
    """The body as it came."""
    url: str
    """Which of the peer's URLs answered."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    chain: tuple[bytes, ...] = ()
    """What the server showed of itself."""

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)
