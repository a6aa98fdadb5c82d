"""Which bytes a fingerprint covers."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal import associated_data, fingerprint, manifest
from gridpost.wire.seal.manifest import signed_attributes
from support.effort import no_more_work_than_hashing
from support.messages import CONTENT, MESSAGE_ID, metadata

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def test_the_manifest_is_the_content_and_ten_attributes_without_separators() -> None:
    expected = (
        CONTENT
        + b"BA1"
        + b"xml"
        + b"2026-03-01T12:00:00.000Z"
        + b"STANDARD_MESSAGE"
        + MESSAGE_ID.encode()
        + b"rel-1"
        + b"E2"
        + b"E1"
        + b"App7"
        + b"A01"
    )
    assert manifest(metadata(), CONTENT) == expected
    assert fingerprint(metadata(), CONTENT) == hashlib.sha512(expected).digest()


@given(TEXT, TEXT, st.binary(max_size=300))
def test_hashing_in_pieces_gives_the_hash_of_the_whole(
    application: str, extension: str, content: bytes
) -> None:
    changed = metadata(sender_application=application, extension=extension)
    assert fingerprint(changed, content) == hashlib.sha512(manifest(changed, content)).digest()


def test_the_text_of_generated_counts_not_its_value() -> None:
    written = "2026-03-01T13:00:00.000000+01:00"
    foreign = metadata(generated=Instant.parse(written))
    assert foreign.generated == metadata().generated
    assert written.encode() in manifest(foreign, b"")
    assert fingerprint(foreign, b"") != fingerprint(metadata(), b"")


@given(st.lists(TEXT, min_size=4, max_size=4), st.lists(TEXT, min_size=4, max_size=4))
def test_no_two_different_metadata_have_the_same_associated_data(
    first: list[str], second: list[str]
) -> None:
    names = ("ba_message_id", "extension", "related_message_id", "sender_application")
    a = metadata(**dict(zip(names, first, strict=True)))
    b = metadata(**dict(zip(names, second, strict=True)))
    assert (associated_data(a) == associated_data(b)) == (
        signed_attributes(a) == signed_attributes(b)
    )


def test_endless_attributes_are_refused_before_they_are_hashed() -> None:
    huge = metadata(sender_application="x" * 100_000_000)
    for use in (fingerprint, manifest, lambda m, _: associated_data(m)):
        with no_more_work_than_hashing(50_000_000), pytest.raises(Refusal) as refused:
            use(huge, b"")
        assert refused.value.rule is Rule.LIMIT_EXCEEDED


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(Refusal) as refused:
        fingerprint(metadata(sender_application="\ud800"), b"")
    assert refused.value.rule is Rule.BAD_VALUE
