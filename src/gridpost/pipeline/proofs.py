"""Non-repudiation audit: every archived proof judged again, in parallel, by the code of the endpoints.

Without the document its journalled fingerprint stands for it: the signature is about the fingerprint.
What was journalled with its content has the fingerprint computed anew.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

import pyarrow as pa

from gridpost.core.acknowledgement import acknowledged_fingerprint
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.identifiers import ComponentCode, MessageId, MessageType
from gridpost.core.instant import Instant
from gridpost.core.message import InternalType, Metadata
from gridpost.core.refusal import Refusal
from gridpost.wire.seal.manifest import fingerprint
from gridpost.wire.seal.processors import SignatureData
from gridpost.wire.seal.profile import DEFAULT
from gridpost.wire.seal.registry import STANDARD
from gridpost.wire.seal.signing import check_signature
from gridpost.wire.x509 import read_certificate, trusted_path

PROVEN, NOT_PROVEN, INCOMPLETE = "proven", "not proven", "incomplete"

AUDIT = (
    "day date, message_id string, sender_code string, receiver_code string, message_type string, "
    "generated timestamp, origin string, origin_reason string, receipt string, "
    "receipt_reason string, verdict string"
)
_AUDIT = pa.schema(
    [
        ("day", pa.date32()),
        ("message_id", pa.string()),
        ("sender_code", pa.string()),
        ("receiver_code", pa.string()),
        ("message_type", pa.string()),
        ("generated", pa.timestamp("us", tz="UTC")),
        ("origin", pa.string()),
        ("origin_reason", pa.string()),
        ("receipt", pa.string()),
        ("receipt_reason", pa.string()),
        ("verdict", pa.string()),
    ]
)
_TEXTS = (
    *("message_id", "internal_type", "sender_code", "receiver_code", "message_type"),
    *("generated_text", "extension", "related_message_id", "ba_message_id", "sender_application"),
    *("signature", "signature_algorithm", "signing_certificate_id", "sender_description"),
)
_ACK_TEXTS = (
    *("acknowledgement_id", "sender_code", "receiver_code", "message_type", "generated_text"),
    *("extension", "signature", "signature_algorithm", "signing_certificate_id"),
    "sender_description",
)
EVIDENCE = pa.schema(
    [
        ("day", pa.date32()),
        *((name, pa.string()) for name in _TEXTS),
        ("generated", pa.timestamp("us", tz="UTC")),
        ("fingerprint", pa.binary()),
        *((f"ack_{name}", pa.string()) for name in _ACK_TEXTS),
        ("ack_generated", pa.timestamp("us", tz="UTC")),
        ("ack_content", pa.binary()),
    ]
)
"""What is judged; `content`, where it is known, comes on top."""


@dataclass(frozen=True, slots=True)
class KnownCertificate:
    """One line of the certificates table; small enough to travel with the work."""

    owner: str
    kind: str
    certificate_id: str
    der: bytes
    revoked_at: int | None = None
    """Microseconds since 1970."""


class Auditor:
    """Judges rows; it remembers certificates that it read and paths that it found."""

    def __init__(self, certificates: Iterable[KnownCertificate], roots: tuple[bytes, ...]) -> None:
        self._by_owner: dict[str, list[KnownCertificate]] = {}
        self._issuers: list[bytes] = []
        for known in certificates:
            if known.kind == CertificateKind.INTEGRATED_CA:
                self._issuers.append(known.der)
            elif known.kind == CertificateKind.SIGNING:
                self._by_owner.setdefault(known.owner, []).append(known)
        self._roots = roots
        self._known: dict[bytes, Certificate] = {}
        self._trusted: dict[bytes, tuple[datetime, datetime]] = {}

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = [self.judge(row) for row in batch.to_pylist()]
            yield pa.RecordBatch.from_pylist(rows, schema=_AUDIT)

    def judge(self, row: dict[str, Any]) -> dict[str, Any]:
        origin, origin_reason = _found(self._origin, row)
        receipt, receipt_reason = _found(self._receipt, row)
        facts = (origin, receipt)
        if facts == (PROVEN, PROVEN):
            verdict = PROVEN
        else:
            verdict = NOT_PROVEN if NOT_PROVEN in facts else INCOMPLETE
        return {
            **{name: row[name] for name in _AUDIT.names[:6]},
            "origin": origin,
            "origin_reason": origin_reason,
            "receipt": receipt,
            "receipt_reason": receipt_reason,
            "verdict": verdict,
        }

    def _origin(self, row: dict[str, Any]) -> tuple[str, str]:
        if not row["signature"]:
            return INCOMPLETE, "the signature is not there"
        metadata = _metadata(row, "", row["message_id"], row["related_message_id"] or "")
        digest = row["fingerprint"]
        content = row.get("content")
        if content is not None:
            algorithm = STANDARD.signature(row["signature_algorithm"] or "SHA-512")
            computed = fingerprint(metadata, content, algorithm.new_hash)
            if not hmac.compare_digest(computed, digest):
                return NOT_PROVEN, "the document is not the one of the fingerprint"
        return self._signed(metadata, digest, row, "")

    def _receipt(self, row: dict[str, Any]) -> tuple[str, str]:
        if row["ack_acknowledgement_id"] is None:
            return INCOMPLETE, "no acknowledgement"
        if not row["ack_signature"]:
            return INCOMPLETE, "the acknowledgement is not signed"
        if row["ack_sender_code"] != row["receiver_code"]:
            return NOT_PROVEN, "the acknowledgement was not issued by the recipient of the message"
        if row["ack_receiver_code"] != row["sender_code"]:
            return NOT_PROVEN, "the acknowledgement was not issued to the sender of the message"
        content = row["ack_content"]
        acknowledged = acknowledged_fingerprint(content)
        if acknowledged is None or not hmac.compare_digest(acknowledged, row["fingerprint"]):
            return NOT_PROVEN, "the acknowledged fingerprint is not that of the message"
        metadata = _metadata(row, "ack_", row["ack_acknowledgement_id"], row["message_id"])
        algorithm = STANDARD.signature(row["ack_signature_algorithm"] or "SHA-512")
        digest = fingerprint(metadata, content, algorithm.new_hash)
        return self._signed(metadata, digest, row, "ack_")

    def _signed(
        self, metadata: Metadata, digest: bytes, row: dict[str, Any], prefix: str
    ) -> tuple[str, str]:
        candidates = self._by_owner.get(metadata.sender_code, [])
        data = SignatureData(
            STANDARD.signature(row[f"{prefix}signature_algorithm"] or "SHA-512"),
            row[f"{prefix}signing_certificate_id"],
            row[f"{prefix}signature"],
        )
        if not candidates:
            return INCOMPLETE, f"no signing certificate of {metadata.sender_code} is known"
        certificates = [self._read(k) for k in candidates]
        used = check_signature(metadata, digest, data, certificates, DEFAULT)
        at = metadata.generated.at
        for known in candidates:
            revoked = known.revoked_at if known.der == used.der else None
            if revoked is not None and revoked <= at.timestamp() * 1_000_000:
                return NOT_PROVEN, "the certificate was revoked at that time"
        problem = self._trust(used.der, at)
        return (PROVEN, "") if not problem else (NOT_PROVEN, problem)

    def _read(self, known: KnownCertificate) -> Certificate:
        found = self._known.get(known.der)
        if found is None:
            found = read_certificate(known.der, CertificateKind.SIGNING, known.certificate_id)
            self._known[known.der] = found
        return found

    def _trust(self, der: bytes, at: datetime) -> str:
        """Whether a path leads to a root. A path that was found holds while all of it is valid."""
        if not self._roots:
            return "no ROOT CA was given to trust"
        since, until = self._trusted.get(der, (at, at))
        if since < at < until:
            return ""
        try:
            path = trusted_path(der, self._issuers, self._roots, at)
        except Refusal as refusal:
            return refusal.message
        found = [read_certificate(one, CertificateKind.INTEGRATED_CA) for one in path]
        self._trusted[der] = (max(c.not_before for c in found), min(c.not_after for c in found))
        return ""


def judging(
    certificates: Sequence[KnownCertificate], roots: tuple[bytes, ...]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What mapInArrow runs, where it runs."""
    known = tuple(certificates)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from _auditor(known, roots)(batches)

    return judge


@lru_cache(maxsize=2)
def _auditor(certificates: tuple[KnownCertificate, ...], roots: tuple[bytes, ...]) -> Auditor:
    """One for all tasks of a worker: a certificate is read, and its path found, once."""
    return Auditor(certificates, roots)


def _found(
    judge: Callable[[dict[str, Any]], tuple[str, str]], row: dict[str, Any]
) -> tuple[str, str]:
    """Whatever evidence cannot be used is a verdict about its message, and of no other."""
    try:
        return judge(row)
    except Refusal as refusal:
        return NOT_PROVEN, refusal.message


def _metadata(row: dict[str, Any], prefix: str, message_id: str, related: str) -> Metadata:
    at = row[f"{prefix}generated"]
    text = row[f"{prefix}generated_text"]
    return Metadata(
        message_id=MessageId(message_id),
        receiver_code=ComponentCode(row[f"{prefix}receiver_code"]),
        message_type=MessageType(row[f"{prefix}message_type"] or row["message_type"]),
        # Journals of older versions lack the text; ours is always written like this.
        generated=Instant(at, text) if text else Instant.of(at),
        expiration_time=None,
        sender_code=ComponentCode(row[f"{prefix}sender_code"]),
        internal_type=(
            InternalType.DELIVERY_ACKNOWLEDGEMENT if prefix else InternalType(row["internal_type"])
        ),
        extension=row[f"{prefix}extension"] or "",
        related_message_id=related,
        sender_application="" if prefix else row["sender_application"] or "",
        ba_message_id="" if prefix else row["ba_message_id"] or "",
        sender_description=row.get(f"{prefix}sender_description") or "",
    )
