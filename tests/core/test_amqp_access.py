"""Table 4 as pure rules; the broker and endpoint services prove it again over real AMQP."""

import pytest

from gridpost.core.amqp_access import BrokerAccess, EndpointAccess
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory
from support.builders import NOW, broker, component_directory, directory, endpoint

KNOWN = directory(
    endpoint("E1"), endpoint("E2"), endpoint("E3"), broker("B1"), component_directory()
)
WITHOUT_E2 = directory(endpoint("E1"), broker("B1"))
BROKER = BrokerAccess(Restriction(frozenset({ComponentCode("E1"), ComponentCode("E2")})))
ENDPOINT = EndpointAccess(ComponentCode("E2"), takes_connections=True)


def produce(
    access: BrokerAccess | EndpointAccess,
    known: Directory = KNOWN,
    *,
    client: str = "E1",
    queue: str = "E2",
    sender: str = "E1",
    receiver: str = "E2",
) -> None:
    access.produce(
        known,
        client,
        queue,
        sender_code=sender,
        receiver_code=receiver,
        subject="A",
        at=NOW,
    )


@pytest.mark.parametrize("access", [BROKER, ENDPOINT])
def test_a_known_endpoint_may_connect_and_produce(access: BrokerAccess | EndpointAccess) -> None:
    assert access.connect(KNOWN, "E1", NOW).code == "E1"
    access.attach_producer(KNOWN, "E1", "E2", NOW)
    produce(access)


@pytest.mark.parametrize("access", [BROKER, ENDPOINT])
@pytest.mark.parametrize(
    ("client", "rule"),
    [
        ("NOBODY", Rule.PEER_UNKNOWN),
        ("B1", Rule.PEER_NOT_ENDPOINT),
        ("CD-1", Rule.PEER_NOT_ENDPOINT),
    ],
)
def test_nobody_else_may_connect_attach_or_produce(
    access: BrokerAccess | EndpointAccess, client: str, rule: Rule
) -> None:
    for operation in (
        lambda: access.connect(KNOWN, client, NOW),
        lambda: access.attach_producer(KNOWN, client, "E2", NOW),
        lambda: produce(access, client=client, sender=client),
    ):
        with pytest.raises(Refusal) as caught:
            operation()
        assert caught.value.rule is rule


@pytest.mark.parametrize("access", [BROKER, ENDPOINT])
def test_messages_must_be_addressed_to_the_queue_and_come_from_the_peer(
    access: BrokerAccess | EndpointAccess,
) -> None:
    with pytest.raises(Refusal) as caught:
        produce(access, receiver="E3")
    assert caught.value.rule is Rule.RECEIVER_NOT_QUEUE
    with pytest.raises(Refusal) as caught:
        produce(access, sender="E9")
    assert caught.value.rule is Rule.SENDER_NOT_CONNECTED_PEER


@pytest.mark.parametrize("access", [BROKER, ENDPOINT])
def test_a_recipient_revoked_after_the_attach_is_refused_at_the_transfer(
    access: BrokerAccess | EndpointAccess,
) -> None:
    with pytest.raises(Refusal) as caught:
        produce(access, WITHOUT_E2)
    assert caught.value.rule is Rule.QUEUE_UNKNOWN


def test_on_a_broker_everyone_consumes_from_the_own_queue_only() -> None:
    BROKER.consume(KNOWN, "E1", "E1", NOW)
    with pytest.raises(Refusal) as caught:
        BROKER.consume(KNOWN, "E1", "E2", NOW)
    assert caught.value.rule is Rule.CONSUMER_NOT_OWN_QUEUE
    with pytest.raises(Refusal) as caught:
        BROKER.consume(KNOWN, "E3", "E3", NOW)
    assert caught.value.rule is Rule.PEER_NOT_ALLOWED


@pytest.mark.parametrize(
    ("queue", "rule"),
    [
        ("NOBODY", Rule.QUEUE_UNKNOWN),
        ("B1", Rule.QUEUE_UNKNOWN),
        ("E3", Rule.QUEUE_NOT_ALLOWED),
    ],
)
def test_on_a_broker_queues_belong_to_admitted_endpoints(queue: str, rule: Rule) -> None:
    with pytest.raises(Refusal) as caught:
        BROKER.attach_producer(KNOWN, "E1", queue, NOW)
    assert caught.value.rule is rule


@pytest.mark.parametrize("queue", ["E1", "E2", "E3"])
def test_nobody_consumes_from_an_endpoint(queue: str) -> None:
    with pytest.raises(Refusal) as caught:
        ENDPOINT.consume(KNOWN, "E1", queue, NOW)
    assert caught.value.rule is Rule.CONSUMER_ON_ENDPOINT


def test_an_endpoint_has_one_queue_and_only_while_it_takes_connections() -> None:
    with pytest.raises(Refusal) as caught:
        ENDPOINT.attach_producer(KNOWN, "E1", "E3", NOW)
    assert caught.value.rule is Rule.QUEUE_UNKNOWN
    closed = EndpointAccess(ComponentCode("E2"), takes_connections=False)
    with pytest.raises(Refusal) as caught:
        closed.connect(KNOWN, "E1", NOW)
    assert caught.value.rule is Rule.NO_DIRECT_CONNECTIONS
