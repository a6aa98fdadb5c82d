"""E1 sends to E2: messages that are sealed, opened and spoiled on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gridpost.core.certificate import Certificate
from gridpost.core.message import (
    InternalMessage,
    Processor,
    SealedMessage,
)
from gridpost.core.ports import SessionKeyOpener
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.seal import (
    DEFAULT,
    Opened,
    Profile,
    Suite,
    open_sealed,
    seal_message,
)
from gridpost.wire.seal.registry import (
    CBC,
    PKCS1_V1_5,
)
from support.messages import message
from support.pki import TestComponent, shared_endpoint

OLD = Profile(
    modes=frozenset({CBC}),
    paddings=frozenset({PKCS1_V1_5}),
    default_mode=CBC,
    default_padding=PKCS1_V1_5,
    send=Suite(mode=CBC, padding=PKCS1_V1_5, announce=False),
)


def e1() -> TestComponent:
    return shared_endpoint("E1")


def e2() -> TestComponent:
    return shared_endpoint("E2")


def e3() -> TestComponent:
    return shared_endpoint("E3")


async def sealed(profile: Profile = DEFAULT, **changes: object) -> SealedMessage:
    return await seal_message(message(**changes), e1().signer, e2().encryption, profile)


async def opened(
    what: SealedMessage,
    *,
    openers: Sequence[SessionKeyOpener] | None = None,
    certificates: Sequence[Certificate] | None = None,
    profile: Profile = DEFAULT,
) -> Opened:
    return await open_sealed(
        what,
        [e2().opener] if openers is None else openers,
        e1().certificates if certificates is None else certificates,
        profile,
    )


async def refused(what: SealedMessage, rule: Rule, **options: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await opened(what, **options)
    assert caught.value.rule is rule, caught.value
    return caught.value


def with_entry(what: SealedMessage, processor: str, key: str, value: str | None) -> SealedMessage:
    """The message with one entry changed, or without it."""
    processors = []
    for p in what.metadata.processors:
        entries = p.entries
        if p.processor_id == processor:
            entries = tuple(
                replace(e, value=value) if e.key == key and value is not None else e
                for e in entries
                if e.key != key or value is not None
            )
        processors.append(Processor(p.processor_id, entries))
    return replace(what, metadata=what.metadata.with_processors(processors))


def entry(what: SealedMessage | InternalMessage, processor: str, key: str) -> str:
    (p,) = what.metadata.processors_named(processor)
    (found,) = p.all(key)
    return found.value


def with_metadata(what: SealedMessage, **changes: object) -> SealedMessage:
    return replace(what, metadata=replace(what.metadata, **changes))
