"""What goes wrong at a peer or on the way ends in the status and the acknowledgement that 503 demands.

Two endpoints with real seals; the post between them is bent. What other files prove already (a revoked
sender, an acknowledgement with a wrong signature) is not repeated here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache

import pytest

from gridpost.core.acknowledgement import compose, fingerprint_content
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.delivery import Event, Side, Status
from gridpost.core.identifiers import ComponentCode, new_message_id
from gridpost.core.journal import RefusalRow
from gridpost.core.message import InternalMessage, InternalType, SealedMessage
from gridpost.core.message_path import Route
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.context import EndpointContext
from gridpost.wire.mades.amqp_message import decode, encode
from gridpost.wire.seal import signing
from gridpost.wire.seal.signing import sign
from support.post import BY_B1, START, Carried, World, authority, keys_of

DAY = timedelta(days=1)


def kind_of(carried: Carried) -> InternalType:
    return decode(carried.data).fields.internal_type


def failures(world: World) -> list[str]:
    """FAILURE_ACKNOWLEDGEMENTs on the wire, each as the message that it is about."""
    return [
        decode(c.data).message.metadata.related_message_id
        for c in world.post.carried
        if kind_of(c) is InternalType.FAILURE_ACKNOWLEDGEMENT
    ]


async def security_rules(world: World, code: str) -> list[str]:
    rows = await world[code].journal()
    return [row.rule for row in rows if isinstance(row, RefusalRow) and row.security]


def rewritten(carried: Carried, now: datetime, **fields: object) -> Carried:
    """The same message with other metadata, in both places where it stands."""
    received = decode(carried.data).message
    metadata = replace(received.metadata, **fields)  # type: ignore[arg-type]
    return replace(carried, data=encode(SealedMessage(metadata, received.body), None, now))


def republish(world: World, code: str, certificates: tuple[Certificate, ...]) -> None:
    world[code].certificates = certificates
    world.directory = world.describe()


async def refused(world: World, message_id: str) -> None:
    """The recipient keeps and offers nothing; the sender learns it and has it FAILED."""
    assert failures(world) == [message_id]
    assert await world["E1"].status(message_id) is Status.FAILED
    assert (await world["E1"].trace(message_id))[-1].event is Event.FAILURE_ACKNOWLEDGED
    assert (await world["E2"].handover.receive("BP1-A")).entry is None
    with pytest.raises(Refusal):
        await world["E2"].enquiry.entry(Side.RECEIVED, message_id)
    assert await security_rules(world, "E2") != []


Bend = Callable[[Carried], Carried | None]


def only_messages(bend: Bend) -> Bend:
    return lambda c: bend(c) if kind_of(c) is InternalType.STANDARD_MESSAGE else c


async def test_a_body_that_was_tampered_with_fails_at_the_sender() -> None:
    world = World()

    def tamper(carried: Carried) -> Carried:
        received = decode(carried.data).message
        body = bytes([received.body[0] ^ 1]) + received.body[1:]
        sealed = SealedMessage(received.metadata, body)
        return replace(carried, data=encode(sealed, None, world.clock.now()))

    world.post.bend = only_messages(tamper)
    message_id = await world["E1"].send("E2")
    await world.carry()
    await refused(world, message_id)


async def test_a_broker_that_names_another_sender_in_its_fields_alone_is_found_out() -> None:
    """The AMQP fields say E3, the signed metadata says E1."""
    world = World(codes=("E1", "E2", "E3"))

    def lie(carried: Carried) -> Carried:
        return replace(carried, data=carried.data.replace(b"\xa1\x02E1", b"\xa1\x02E3", 1))

    world.post.bend = only_messages(lie)
    message_id = await world["E1"].send("E2")
    await world.carry()
    # Whom to answer is what the fields say: E3 gets a FAILURE for what it never sent and ignores it.
    assert failures(world) == [message_id]
    assert "FIELDS_DISAGREE" in await security_rules(world, "E2")
    assert "MESSAGE_UNKNOWN" in await security_rules(world, "E3")
    assert (await world["E2"].handover.receive("BP1-A")).entry is None
    # The sender is told nothing, so that the message fails when it expires.
    world.clock.advance(30 * DAY)
    await world.expire()
    assert await world["E1"].status(message_id) is Status.FAILED


async def test_a_broker_that_names_another_sender_everywhere_breaks_the_signature() -> None:
    world = World(codes=("E1", "E2", "E3"))
    world.post.bend = only_messages(
        lambda c: rewritten(c, world.clock.now(), sender_code=ComponentCode("E3"))
    )
    message_id = await world["E1"].send("E2")
    await world.carry()
    assert failures(world) == [message_id]
    assert (await world["E2"].handover.receive("BP1-A")).entry is None
    rules = await security_rules(world, "E2")
    assert any(rule.startswith("SEAL_") for rule in rules), rules


async def test_a_signing_certificate_that_had_expired_when_the_message_was_made_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sender that does not look at the end of its certificate, or whose clock hides it."""
    world = World()
    old = expired_certificate(world)
    monkeypatch.setattr(signing, "check_may_sign", lambda metadata, certificate: None)
    signer = next(s for s in world["E1"].keyring.signers() if s.certificate == old)
    monkeypatch.setattr(EndpointContext, "signer", lambda self, at: signer)
    message_id = await world["E1"].send("E2")
    monkeypatch.undo()
    await world.carry()
    await refused(world, message_id)
    assert "SEAL_SIGNING_CERTIFICATE_EXPIRED" in await security_rules(world, "E2")


async def test_a_certificate_that_was_good_when_the_message_was_made_is_good_later() -> None:
    """503 cl. 6.5.4 step 2: a message may be older than the end of its sender's certificate."""
    world = World()
    expired_certificate(world)
    now = world.clock.now()
    world.clock.time = now - 2 * timedelta(hours=1)
    message_id = await world["E1"].send("E2")
    world.clock.time = now
    await world.carry()
    assert await world["E1"].status(message_id) is Status.DELIVERED


@cache
def certified_until_an_hour_ago() -> Certificate:
    keyring, _ = keys_of("E1")
    end = START - timedelta(hours=1)
    return authority().certify(keyring, CertificateKind.SIGNING, "E1", START - 9 * DAY, end)


def expired_certificate(world: World) -> Certificate:
    """One of E1 that ended an hour ago, still published beside its successor."""
    old = certified_until_an_hour_ago()
    republish(world, "E1", (*keys_of("E1")[1], old))
    return old


async def test_swapped_certificates_of_two_peers_fail_the_message() -> None:
    """The directory shows E1's certificates as those of E3 and the other way round."""
    world = World(codes=("E1", "E2", "E3"))
    one, three = world["E1"].certificates, world["E3"].certificates
    message_id = await world["E1"].send("E2")
    republish(world, "E1", three)
    republish(world, "E3", one)
    await world.carry()
    await refused(world, message_id)


async def test_an_encryption_certificate_of_somebody_else_fails_the_message() -> None:
    """The directory shows E3's encryption certificate under E2: E2 cannot open what comes."""
    world = World(codes=("E1", "E2", "E3"))
    signing = [c for c in world["E2"].certificates if c.kind is CertificateKind.SIGNING]
    other = [c for c in world["E3"].certificates if c.kind is CertificateKind.ENCRYPTION]
    republish(world, "E2", (*signing, *other))
    message_id = await world["E1"].send("E2")
    await world.carry()
    await refused(world, message_id)


async def test_a_recipient_whose_encryption_certificate_has_ended_is_not_sent_to() -> None:
    """503 cl. 5.5, then 5.7: refused at once; accepted before, it waits until it expires."""
    world = World()
    accepted = await world["E1"].send("E2")
    signing = [c for c in world["E2"].certificates if c.kind is CertificateKind.SIGNING]
    republish(world, "E2", tuple(signing))
    with pytest.raises(Refusal):
        await world["E1"].send("E2")
    await world.carry()
    assert world.post.carried == []
    assert await world["E1"].status(accepted) is Status.ACCEPTED
    world.clock.advance(30 * DAY)
    await world.expire()
    assert await world["E1"].status(accepted) is Status.FAILED


async def test_an_acknowledgement_of_another_party_does_not_move_the_message() -> None:
    """E3 signs, with its own good certificate, that it has received what went to E2."""
    world = World(codes=("E1", "E2", "E3"))
    world.post.bend = lambda carried: None
    message_id = await world["E1"].send("E2")
    await world["E1"].transfer.round()
    entry = await world["E1"].enquiry.entry(Side.SENT, message_id)
    as_sent_to = replace(entry.metadata, receiver_code=ComponentCode("E3"))
    forged = compose(
        InternalType.DELIVERY_ACKNOWLEDGEMENT,
        as_sent_to,
        fingerprint_content(entry.fingerprint),
        message_id=new_message_id(),
        now=world.clock.now(),
    )
    signed = await sign(forged, world["E3"].context.signer(world.clock.now()))
    await world["E1"].arrival.arrive(_wire(signed, world.clock.now()), BY_B1)
    assert await world["E1"].status(message_id) is Status.ACCEPTED
    trace = await world["E1"].trace(message_id)
    assert (trace[-1].event, trace[-1].moved) == (Event.ACKNOWLEDGEMENT_REFUSED, False)
    assert await security_rules(world, "E1") != []


async def test_an_acknowledgement_by_another_route_does_not_move_the_message() -> None:
    """503 cl. 5.6.2: it comes back the way the message went."""
    world = World()
    acks: list[Carried] = []

    def keep(carried: Carried) -> Carried | None:
        if kind_of(carried) is InternalType.STANDARD_MESSAGE:
            return carried
        acks.append(carried)
        return None

    world.post.bend = keep
    message_id = await world["E1"].send("E2")
    await world.carry()
    await world["E1"].arrival.arrive(acks[0].data, Route(ComponentCode("B2")))
    assert await world["E1"].status(message_id) is Status.ACCEPTED
    await world["E1"].arrival.arrive(acks[0].data, acks[0].route)
    assert await world["E1"].status(message_id) is Status.DELIVERED


@pytest.mark.parametrize("skew", [-timedelta(hours=6), timedelta(hours=6)])
async def test_a_wrong_clock_within_the_life_of_message_and_certificates_does_no_harm(
    skew: timedelta,
) -> None:
    """Times are claims of their makers; what counts is the expiration that the sender gave."""
    world = World()
    message_id = await world["E1"].send("E2")
    world.clock.advance(skew)
    await world["E1"].transfer.round()
    await world["E2"].handover.confirm(message_id)
    await world["E2"].transfer.round()
    world.clock.advance(-skew)
    assert await world["E1"].status(message_id) is Status.RECEIVED


async def test_a_recipient_whose_clock_is_past_the_expiration_ignores_the_message() -> None:
    """503 cl. 5.7: accepted, ignored, not acknowledged; the sender has it FAILED when it expires."""
    world = World()
    taken: list[Carried] = []

    def keep(carried: Carried) -> None:
        taken.append(carried)

    world.post.bend = keep
    message_id = await world["E1"].send("E2")
    await world["E1"].transfer.round()
    world.clock.advance(30 * DAY)
    await world["E2"].arrival.arrive(taken[0].data, taken[0].route)
    assert failures(world) == []
    assert (await world["E2"].handover.receive("BP1-A")).entry is None
    await world.expire()
    assert await world["E1"].status(message_id) is Status.FAILED


def _wire(message: InternalMessage, now: datetime) -> bytes:
    return encode(SealedMessage(message.metadata, message.content), None, now)
