"""Table 4 on a broker: what is checked when an endpoint connects, attaches and produces.

The client is Gridpost's own; `tests/interop/test_broker_clients.py` has the rows with two others.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from gridpost.core.certificate import CertificateKind
from gridpost.core.component import ComponentType
from gridpost.core.links import LinkRefused, Outcome, OutcomeKind
from gridpost.core.message import InternalType
from gridpost.transports.amqp10.tls import client_context
from gridpost.wire.x509 import Validity, to_pem
from support.broker_process import BrokerNetwork, Inbox, amqp_credentials, message, pem_key
from support.https import live_pki
from support.pki import TestPki, rsa_key
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNAUTHORIZED = "amqp:unauthorized-access"


@pytest_asyncio.fixture(autouse=True, loop_scope="module")
async def unrestricted(broker: BrokerNetwork) -> AsyncIterator[None]:
    """Every test begins with E1 and E2 registered and nothing restricted."""
    for code in ("E1", "E2"):
        if code not in broker.directory.others:
            broker.endpoint(code)
    yield
    await broker.close_connections()


async def restrict(broker: BrokerNetwork, **restriction: Any) -> None:
    """As an administrator does it: edit the file, and wait until the broker has read it."""
    before = len(broker.logged("configuration reloaded"))
    broker.configure(restriction=restriction)
    await eventually(lambda: len(broker.logged("configuration reloaded")) > before)


def rejected(outcome: Outcome, condition: str, rule: str) -> bool:
    return (
        outcome.kind is OutcomeKind.REJECTED
        and outcome.condition == condition
        and rule in outcome.description
    )


async def refused(broker: BrokerNetwork, own: Any, rule: str) -> None:
    """The connection does not come up, and the journal of refusals says why."""
    with pytest.raises((LinkRefused, ssl.SSLError, ConnectionError)):
        await broker.connect("E1", own)
    await eventually(lambda: any(line.get("rule") == rule for line in broker.logged("refused")))


# ---------------------------------------------------------------- connect


@pytest.mark.req("503-T4-c", "503-8.4.1-d", "503-6.1.2-a", "503-4.5.1-b", component="broker")
async def test_an_endpoint_connects_with_its_authentication_certificate(
    broker: BrokerNetwork,
) -> None:
    connection = await broker.connect("E1")
    (shown,) = (await broker.ask("/connections")).json()
    assert shown["component"] == "E1"
    connection.close()


@pytest.mark.req("503-T4-b", component="broker")
async def test_plain_amqp_is_not_answered(broker: BrokerNetwork) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    writer.write(b"AMQP\x00\x01\x00\x00")
    await writer.drain()
    answer = await asyncio.wait_for(reader.read(100), 60)
    # At most a TLS alert, never AMQP.
    assert b"AMQP" not in answer
    writer.close()


@pytest.mark.req("503-T4-b", component="broker")
async def test_the_port_is_5671_unless_configured_otherwise(broker: BrokerNetwork) -> None:
    from gridpost.assembly.broker_configuration import ServerSection

    assert ServerSection(urls=("amqps://b1.grid.example",)).port == 5671


@pytest.mark.req("503-2-a", "503-9.1-b", "503-9.2-f", component="broker")
@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x03\x02\x00\x00"])
async def test_another_protocol_version_is_answered_with_ours(
    broker: BrokerNetwork, header: bytes
) -> None:
    context = client_context(amqp_credentials(broker.members["E1"], broker.directory.pki.root))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
    writer.write(header)
    answer = await asyncio.wait_for(reader.read(), 60)
    assert answer == b"AMQP\x03\x01\x00\x00"
    writer.close()


@pytest.mark.req("503-T4-c", "503-4.5.1-b", component="broker")
async def test_without_a_certificate_nobody_connects(broker: BrokerNetwork) -> None:
    context = ssl.create_default_context(cadata=to_pem(broker.directory.pki.root).decode())
    context.check_hostname = False
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
    writer.write(b"AMQP\x03\x01\x00\x00")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        assert await reader.read(100) == b""
        raise ConnectionError("closed without a word")
    writer.close()


@pytest.mark.req("503-6.1.2-a", component="broker")
async def test_only_sasl_external_is_offered(broker: BrokerNetwork) -> None:
    context = client_context(amqp_credentials(broker.members["E1"], broker.directory.pki.root))
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, ssl=context)
    writer.write(b"AMQP\x03\x01\x00\x00")
    offer = await asyncio.wait_for(reader.readuntil(b"EXTERNAL"), 60)
    assert offer.startswith(b"AMQP\x03\x01\x00\x00")
    assert b"ANONYMOUS" not in offer
    assert b"PLAIN" not in offer
    writer.close()


@pytest.mark.req("503-T4-c", component="broker")
@pytest.mark.parametrize("kind", [CertificateKind.SIGNING, CertificateKind.ENCRYPTION])
async def test_a_signing_or_encryption_certificate_opens_no_connection(
    broker: BrokerNetwork, kind: CertificateKind
) -> None:
    own = amqp_credentials(broker.members["E1"], broker.directory.pki.root, kind)
    with pytest.raises((LinkRefused, ssl.SSLError, ConnectionError)):
        await broker.connect("E1", own)


@pytest.mark.req("503-T4-c", component="broker")
async def test_an_installation_certificate_opens_no_connection(broker: BrokerNetwork) -> None:
    pki = broker.directory.pki
    own = replace(
        amqp_credentials(broker.members["E1"], pki.root),
        chain_pem=to_pem(pki.installation("E1"), pki.integrated_ca),
        key_pem=_key_pem("E1 installation"),
    )
    with pytest.raises((LinkRefused, ssl.SSLError, ConnectionError)):
        await broker.connect("E1", own)


def _key_pem(name: str) -> bytes:
    from gridpost.stores.keys.rsa_operations import to_pkcs8

    return pem_key(to_pkcs8(rsa_key(name)))


@pytest.mark.req("503-T4-c", component="broker")
async def test_the_certificate_of_a_broker_or_directory_opens_no_connection(
    broker: BrokerNetwork,
) -> None:
    other = broker.directory.pki.component("B7", [CertificateKind.AUTHENTICATION])
    broker.publish(other, ComponentType.BROKER)
    broker.directory.others["B7"] = replace(
        broker.directory.others["B7"],
        restriction=broker.directory.others["B1"].restriction,
    )
    await broker.synchronised()
    await refused(broker, amqp_credentials(other, broker.directory.pki.root), "PEER_NOT_ENDPOINT")
    home = amqp_credentials(broker.directory.me, broker.directory.pki.root)
    await refused(broker, home, "PEER_NOT_ENDPOINT")
    broker.revoke("B7")


@pytest.mark.req("503-8.4.1-a", "503-T4-c", component="broker")
async def test_a_certificate_of_another_root_is_refused(broker: BrokerNetwork) -> None:
    stranger = TestPki("CD-1", "ANOTHER ROOT", now=datetime.now(UTC)).component("E1")
    with pytest.raises((LinkRefused, ssl.SSLError, ConnectionError)):
        await broker.connect("E1", amqp_credentials(stranger, broker.directory.pki.root))


@pytest.mark.req("503-8.4.1-b", "503-T4-c", component="broker")
async def test_the_right_name_from_the_authority_of_another_subsystem_is_refused(
    broker: BrokerNetwork,
) -> None:
    other = live_pki("CD-2").component("E1", key_name="E1 of CD-2")
    own = amqp_credentials(other, broker.directory.pki.root)
    await refused(broker, own, "CERTIFICATE_NOT_OF_COMPONENT")


@pytest.mark.req("503-8.3.2-e", "503-8.4.1-b", component="broker")
async def test_an_expired_certificate_is_refused(broker: BrokerNetwork) -> None:
    now = datetime.now(UTC)
    past = Validity(now - timedelta(days=20), now - timedelta(days=10))
    old = broker.directory.pki.component("E1", validity=past)
    with pytest.raises((LinkRefused, ssl.SSLError, ConnectionError)):
        await broker.connect("E1", amqp_credentials(old, broker.directory.pki.root))


@pytest.mark.req("503-8.3.2-e", component="broker")
async def test_a_connection_ends_when_its_certificate_does(broker: BrokerNetwork) -> None:
    # A busy machine may need longer than one lives until it is connected.
    for seconds in (5, 20, 60):
        now = datetime.now(UTC)
        soon = Validity(now - timedelta(days=1), now + timedelta(seconds=seconds))
        broker.publish(broker.directory.pki.component("E8", validity=soon))
        await broker.synchronised()
        try:
            connection = await broker.connect("E8")
            break
        except (LinkRefused, ssl.SSLError, ConnectionError):
            assert datetime.now(UTC) > soon.not_after - timedelta(seconds=1)
    else:
        pytest.fail("not even a certificate of a minute lets it in")
    condition, _ = await asyncio.wait_for(connection.lost, 60)
    assert condition == UNAUTHORIZED
    broker.revoke("E8")


@pytest.mark.req("503-8.4.1-c", component="broker")
async def test_a_client_that_conveys_no_integrated_ca_is_refused(broker: BrokerNetwork) -> None:
    own = amqp_credentials(broker.members["E1"], broker.directory.pki.root)
    leaf = to_pem(broker.members["E1"].authentication.der)
    with pytest.raises((LinkRefused, ssl.SSLError, ConnectionError)):
        await broker.connect("E1", replace(own, chain_pem=leaf))


@pytest.mark.req("503-8.4.1-c", "503-8.3.2-d", "503-8.3.2-a", component="broker")
async def test_the_broker_conveys_its_certificate_and_the_integrated_ca(
    broker: BrokerNetwork,
) -> None:
    seen: list[tuple[bytes, ...]] = []

    async def look(peer: Any) -> None:
        seen.append(peer.chain)

    await broker.connect("E1", check=look)
    published = broker.directory.others["B1"].certificates
    assert seen[0][0] in {c.der for c in published}
    assert seen[0][1:] == (broker.directory.pki.integrated_ca, broker.directory.pki.root)


@pytest.mark.req("503-8.5-g", component="broker")
async def test_each_valid_certificate_of_a_renewed_endpoint_is_accepted(
    broker: BrokerNetwork,
) -> None:
    pki = broker.directory.pki
    old = broker.endpoint("E5")
    new = pki.component("E5", key_name="E5 renewed")
    broker.directory.others["E5"] = replace(
        broker.directory.others["E5"], certificates=(*old.certificates, *new.certificates)
    )
    await broker.synchronised()
    for member in (old, new):
        await broker.connect("E5", amqp_credentials(member, pki.root))


async def test_the_old_certificate_of_a_code_that_was_registered_again_is_refused(
    broker: BrokerNetwork,
) -> None:
    old = broker.endpoint("E6")
    broker.publish(broker.directory.pki.component("E6", key_name="E6 again"))
    await broker.synchronised()
    await broker.connect("E6")
    own = amqp_credentials(old, broker.directory.pki.root)
    await refused(broker, own, "CERTIFICATE_NOT_OF_COMPONENT")


@pytest.mark.req("503-T4-d")
@pytest.mark.req("503-5.4-a")
@pytest.mark.req("503-5.4-f")
@pytest.mark.req("503-5.4-d", component="broker")
@pytest.mark.req("503-T22-b")
async def test_only_allowed_endpoints_connect(broker: BrokerNetwork) -> None:
    await restrict(broker, components=["E2"])
    with pytest.raises(LinkRefused, match=UNAUTHORIZED):
        await broker.connect("E1")
    await broker.connect("E2")
    await restrict(broker, components=["E1", "E2"])
    await broker.connect("E1")
    await restrict(broker)
    await broker.connect("E1")


@pytest.mark.req("503-5.4-f")
async def test_an_endpoint_that_is_no_longer_allowed_does_not_stay_connected(
    broker: BrokerNetwork,
) -> None:
    connection = await broker.connect("E1")
    await restrict(broker, components=["E2"])
    condition, _ = await asyncio.wait_for(connection.lost, 60)
    assert condition == UNAUTHORIZED
    await restrict(broker)


# ---------------------------------------------------------------- any operation


@pytest.mark.req("503-T4-a", component="broker")
@pytest.mark.req("503-8.6-f")
async def test_a_revoked_endpoint_is_disconnected_and_does_not_come_back(
    broker: BrokerNetwork,
) -> None:
    broker.endpoint("E9")
    await broker.synchronised()
    connection = await broker.connect("E9")
    await connection.attach_producer("E2")
    broker.revoke("E9")
    condition, description = await asyncio.wait_for(connection.lost, 60)
    assert condition == UNAUTHORIZED
    assert "PEER_UNKNOWN" in description
    with pytest.raises(LinkRefused, match=UNAUTHORIZED):
        await broker.connect("E9")


@pytest.mark.req("503-8.6-g")
@pytest.mark.req("503-T4-k", component="broker")
async def test_nothing_is_taken_for_a_recipient_that_was_revoked_after_the_attach(
    broker: BrokerNetwork,
) -> None:
    broker.endpoint("E7")
    await broker.synchronised()
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E7")
    assert (await producer.send(message(receiver="E7"))).taken
    broker.revoke("E7")
    await broker.synchronised()
    outcome = await producer.send(message(receiver="E7"))
    assert rejected(outcome, "amqp:not-found", "QUEUE_UNKNOWN")
    assert await broker.depth("E7") == 1


# ---------------------------------------------------------------- attach


@pytest.mark.req("503-T4-f")
@pytest.mark.req("503-T3-a", component="broker")
async def test_an_endpoint_consumes_from_its_own_queue_only(broker: BrokerNetwork) -> None:
    connection = await broker.connect("E1")
    await connection.attach_consumer("E1", Inbox(), credit=1)
    for other in ("E2", "B1", "nobody"):
        with pytest.raises(LinkRefused, match=UNAUTHORIZED):
            await connection.attach_consumer(other, Inbox(), credit=1)
    # The connection lives on.
    await connection.attach_producer("E2")


@pytest.mark.req("503-T4-h")
@pytest.mark.req("503-6.3-g", "503-T3-b", component="broker")
@pytest.mark.parametrize("queue", ["nobody", "B1", "CD-1", "e2", "E2 "])
async def test_a_producer_attaches_only_to_the_code_of_an_endpoint(
    broker: BrokerNetwork, queue: str
) -> None:
    connection = await broker.connect("E1")
    with pytest.raises(LinkRefused, match="amqp:not-found"):
        await connection.attach_producer(queue)
    assert await broker.queue(queue) is None
    await connection.attach_producer("E2")


@pytest.mark.req("503-T4-h")
async def test_a_producer_does_not_attach_to_an_endpoint_that_the_broker_does_not_allow(
    broker: BrokerNetwork,
) -> None:
    broker.endpoint("E3")
    await restrict(broker, components=["E1"])
    await broker.synchronised()
    connection = await broker.connect("E1")
    with pytest.raises(LinkRefused, match=UNAUTHORIZED):
        await connection.attach_producer("E3")
    await restrict(broker)


# ---------------------------------------------------------------- produce


@pytest.mark.req("503-T4-j", "503-T4-l", "503-6.3-g", component="broker")
async def test_sender_and_receiver_of_a_message_are_those_of_the_link(
    broker: BrokerNetwork,
) -> None:
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E2")
    before = await broker.depth("E2")
    wrong_receiver = await producer.send(message(receiver="E3"))
    assert rejected(wrong_receiver, "amqp:invalid-field", "RECEIVER_NOT_QUEUE")
    wrong_sender = await producer.send(message(sender="E9"))
    assert rejected(wrong_sender, UNAUTHORIZED, "SENDER_NOT_CONNECTED_PEER")
    assert await broker.depth("E2") == before
    assert (await producer.send(message())).taken
    await broker.receive("E2", before + 1)


@pytest.mark.req("503-T4-m")
@pytest.mark.req("503-5.4-b")
@pytest.mark.req("503-5.4-g")
@pytest.mark.req("503-5.12-h")
@pytest.mark.req("503-5.4-d", "503-5.4-e", component="broker")
@pytest.mark.req("503-T22-a")
@pytest.mark.parametrize(
    "kind",
    [
        InternalType.STANDARD_MESSAGE,
        InternalType.DELIVERY_ACKNOWLEDGEMENT,
        InternalType.TRACING_MESSAGE,
    ],
)
async def test_only_allowed_message_types_pass_whatever_the_kind_of_message(
    broker: BrokerNetwork, kind: InternalType
) -> None:
    await restrict(broker, message_types=["BP1*", "X-1"])
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E2")
    for allowed in ("BP1", "BP1-A", "X-1"):
        assert (await producer.send(message(message_type=allowed, kind=kind))).taken
    for other in ("BP2-A", "X-12", "BP"):
        outcome = await producer.send(message(message_type=other, kind=kind))
        assert rejected(outcome, "amqp:not-allowed", "MESSAGE_TYPE_NOT_ALLOWED")
    await restrict(broker)
    assert (await producer.send(message(message_type="BP2-A", kind=kind))).taken
    got = await broker.receive("E2", 4)
    assert len(got) == 4


@pytest.mark.req("503-T4-m")
@pytest.mark.parametrize(
    "field",
    [b"senderCode", b"receiverCode", b"messageID", b"generated", b"internalType",
     b"messageMversion"],
)  # fmt: skip
async def test_a_message_that_lacks_a_field_is_rejected(
    broker: BrokerNetwork, field: bytes
) -> None:
    connection = await broker.connect("E1")
    producer = await connection.attach_producer("E2")
    outcome = await producer.send(message().replace(field, b"x" * len(field), 1))
    assert rejected(outcome, "amqp:invalid-field", "FIELD_MISSING")
