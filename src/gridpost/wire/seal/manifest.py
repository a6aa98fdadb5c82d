"""The manifest of 503 cl. 6.5.4: which bytes a fingerprint covers, and in which order.

The standard puts no separators between attributes, so bytes can move from one to its neighbour
without changing the fingerprint. The same ten attributes with their lengths are therefore the
associated data of the authenticated cipher (see divergences, manifest).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Protocol

from gridpost.core.message import Metadata
from gridpost.core.refusal import Refusal, Rule

# All ten together. The fields have short patterns; nobody may make us hash megabytes of them.
MAX_ATTRIBUTES = 64 * 1024


class Hash(Protocol):
    """A running digest of `hashlib`."""

    def update(self, data: bytes, /) -> None: ...

    def digest(self) -> bytes: ...


NewHash = Callable[[bytes], Hash]


def signed_attributes(metadata: Metadata) -> tuple[str, ...]:
    """In the order of the standard, after the content.

    `generated` is the text that was received, never a re-formatted value; what is absent is empty.
    """
    return (
        metadata.ba_message_id,
        metadata.extension,
        metadata.generated.text,
        metadata.internal_type.value,
        metadata.message_id,
        metadata.related_message_id,
        metadata.receiver_code,
        metadata.sender_code,
        *_description(metadata),
        metadata.sender_application,
        metadata.message_type,
    )


def _description(metadata: Metadata) -> tuple[str, ...]:
    """MADES 1.1 cl. 3.14.3 has one attribute more; messages of version 2 do not change."""
    return (metadata.sender_description,) if metadata.sender_description else ()


def manifest(metadata: Metadata, content: bytes) -> bytes:
    """For tests and for people; to hash it, `fingerprint` needs no copy of the content."""
    return content + _joined(metadata)


def fingerprint(metadata: Metadata, content: bytes, new_hash: NewHash = hashlib.sha512) -> bytes:
    attributes = _joined(metadata)
    running = new_hash(content)
    running.update(attributes)
    return running.digest()


def associated_data(metadata: Metadata) -> bytes:
    """Each attribute behind its length in four bytes, so that no byte can change its place."""
    _joined(metadata)
    parts = [attribute.encode() for attribute in signed_attributes(metadata)]
    return b"".join(len(part).to_bytes(4) + part for part in parts)


def _joined(metadata: Metadata) -> bytes:
    attributes = signed_attributes(metadata)
    if sum(map(len, attributes)) > MAX_ATTRIBUTES:
        raise Refusal(
            Rule.LIMIT_EXCEEDED,
            f"the signed metadata is longer than {MAX_ATTRIBUTES} characters",
        )
    try:
        return "".join(attributes).encode()
    except UnicodeEncodeError:
        raise Refusal(Rule.BAD_VALUE, "the signed metadata is not valid Unicode") from None
