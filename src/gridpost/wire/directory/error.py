"""The body of every answer of 400 and over (503 cl. 7.5): a refusal as the other side sees it."""

from __future__ import annotations

from dataclasses import dataclass

from gridpost.core.refusal import Refusal
from gridpost.wire.directory import document as doc
from gridpost.wire.xml import XmlLimits
from gridpost.wire.xml_text import element

_LIMITS = XmlLimits(
    max_bytes=256 * 1024,
    max_depth=4,
    max_elements=16,
    max_attributes=16,
    max_attribute_length=1_024,
)


@dataclass(frozen=True, slots=True)
class PeerError:
    """What a component-directory said. Its code is free text: other products have their own."""

    code: str
    id: str
    message: str
    details: str

    @classmethod
    def of(cls, refusal: Refusal) -> PeerError:
        return cls(refusal.code.value, refusal.id, refusal.message, refusal.details)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.details})" if self.details else "")


def encode_error(error: Refusal | PeerError) -> bytes:
    value = PeerError.of(error) if isinstance(error, Refusal) else error
    return doc.document(
        "error",
        element("code", value.code)
        + element("id", value.id)
        + element("message", value.message)
        + element("details", value.details),
    )


def decode_error(data: bytes) -> PeerError:
    """Refused when the body is none: an answer of a proxy, for instance."""
    root = doc.read("error", "error", data, _LIMITS)
    return PeerError(
        doc.text(root, "code"),
        doc.text(root, "id"),
        doc.text(root, "message"),
        doc.text(root, "details"),
    )
