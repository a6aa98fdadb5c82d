"""What a directory said of one party when a message was delivered, as one paper to be archived.

Years later a proof set is made from papers: the directory of that day need not know the party any
more (503 cl. 4.5.4).
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.wire.proof_file import DirectoryEntry
from gridpost.wire.x509 import read_certificate


@dataclass(frozen=True, slots=True)
class PartyPaper:
    code: str
    certificates: tuple[Certificate, ...] = ()
    """Of the kind SIGNING."""
    issuers: tuple[bytes, ...] = ()
    """INTEGRATED CAs of its home (DER)."""
    entries: tuple[DirectoryEntry, ...] = ()


def encode(paper: PartyPaper) -> bytes:
    """The same party is the same bytes, so that a store keeps it once."""
    form: dict[str, Any] = {
        "code": paper.code,
        "certificates": [_text(c.der) for c in paper.certificates],
        "issuers": [_text(der) for der in paper.issuers],
        "entries": [
            {
                "code": e.code,
                "componentDirectory": e.component_directory,
                "contentID": e.content_id,
                "document": _text(e.document),
            }
            for e in paper.entries
        ],
    }
    return json.dumps(form, separators=(",", ":"), sort_keys=True).encode()


def decode(data: bytes) -> PartyPaper:
    """Only what `encode` wrote: papers never leave the store."""
    form = json.loads(data)
    return PartyPaper(
        form["code"],
        tuple(
            read_certificate(b64decode(text), CertificateKind.SIGNING)
            for text in form["certificates"]
        ),
        tuple(b64decode(text) for text in form["issuers"]),
        tuple(
            DirectoryEntry(
                e["code"], e["componentDirectory"], e["contentID"], b64decode(e["document"])
            )
            for e in form["entries"]
        ),
    )


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")
