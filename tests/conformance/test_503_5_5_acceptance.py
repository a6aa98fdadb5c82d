"""503 cl. 5.1, 5.2, 5.4, 5.5: names, broker restriction, and acceptance of a message."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from gridpost.core.acceptance import accept
from gridpost.core.amqp_access import BrokerAccess
from gridpost.core.certificate import CertificateKind
from gridpost.core.component import Component
from gridpost.core.identifiers import (
    ComponentCode,
    MessageTypePattern,
    message_type,
    new_message_id,
)
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from support.builders import (
    NOW,
    broker,
    certificate,
    component_directory,
    directory,
    endpoint,
    path,
)


def outcome(*components: Component, recipient: str = "E2", kind: str = "BP1-A") -> str:
    """The route by which E1's message is accepted, or the rule that refused it."""
    known = directory(endpoint("E1"), *components)
    try:
        accepted = accept(
            known,
            sender=ComponentCode("E1"),
            recipient=ComponentCode(recipient),
            message_type=kind,
            at=NOW,
        )
    except Refusal as refusal:
        return refusal.rule.name
    return str(accepted.route)


E2 = endpoint("E2", path("BP1-*"))
B1 = broker("B1")


@pytest.mark.req("503-5.1-d")
def test_every_message_id_is_a_uuid_of_its_own() -> None:
    ids = {new_message_id() for _ in range(10_000)}
    assert len(ids) == 10_000
    assert {UUID(i).variant for i in ids} == {"specified in RFC 4122"}


@pytest.mark.req("503-5.1-b")
def test_a_message_is_sent_to_an_endpoint_by_its_code_and_to_nothing_else() -> None:
    assert outcome(E2, B1) == "INDIRECT:B1"
    assert outcome(E2, B1, recipient="B1") == "RECIPIENT_NOT_ENDPOINT"
    assert outcome(component_directory(), recipient="CD-1") == "RECIPIENT_NOT_ENDPOINT"


@pytest.mark.req("503-5.2-b")
def test_a_message_type_must_be_given() -> None:
    with pytest.raises(Refusal) as caught:
        message_type("")
    assert caught.value.rule is Rule.BAD_MESSAGE_TYPE


@pytest.mark.req("503-5.2-d")
def test_message_types_are_free_texts_within_the_pattern() -> None:
    assert message_type("BP1-A") == "BP1-A"
    for strict, bad in ((True, "BP1-A"), (True, "A_B"), (False, "A_B")):
        with pytest.raises(Refusal):
            message_type(bad, strict=strict)


@pytest.mark.req("503-5.5-a")
def test_the_recipient_must_exist() -> None:
    assert outcome(B1) == "RECIPIENT_UNKNOWN"
    assert outcome(E2, B1) == "INDIRECT:B1"


def test_a_recipient_known_only_from_lapsed_data_is_refused_with_that_reason() -> None:
    known = directory(endpoint("E1"), E2, B1, valid_until=NOW)
    with pytest.raises(Refusal) as caught:
        accept(
            known,
            sender=ComponentCode("E1"),
            recipient=ComponentCode("E2"),
            message_type="BP1-A",
            at=NOW,
        )
    assert caught.value.rule is Rule.DIRECTORY_DATA_LAPSED
    assert caught.value.retryable


@pytest.mark.req("503-5.5-b")
def test_the_recipient_must_have_a_valid_encryption_certificate() -> None:
    expired = certificate(
        CertificateKind.ENCRYPTION, "E2", start=NOW - timedelta(days=9), end=NOW - timedelta(days=1)
    )
    for certificates in ((), (expired,), (certificate(CertificateKind.SIGNING, "E2"),)):
        assert outcome(replace(E2, certificates=certificates), B1) == "NO_ENCRYPTION_CERTIFICATE"


@pytest.mark.req("503-5.5-c")
def test_a_message_path_must_be_found() -> None:
    assert outcome(E2, B1, kind="OTHER") == "NO_PATH_MATCHES"
    assert outcome(E2, B1, kind="BP1-X") == "INDIRECT:B1"


@pytest.mark.req("503-5.5-d")
def test_the_broker_of_the_path_must_exist_and_be_a_broker() -> None:
    assert outcome(E2) == "BROKER_UNKNOWN"
    assert outcome(endpoint("E2", path("BP1-*", "INDIRECT:E3")), endpoint("E3")) == "BROKER_UNKNOWN"


@pytest.mark.req("503-5.5-e")
def test_the_broker_must_admit_the_sender() -> None:
    assert outcome(E2, broker("B1", components=("E2",))) == "BROKER_REFUSES_SENDER"
    assert outcome(E2, broker("B1", components=("E1", "E2"))) == "INDIRECT:B1"


@pytest.mark.req("503-5.5-f")
def test_the_broker_must_admit_the_recipient() -> None:
    assert outcome(E2, broker("B1", components=("E1",))) == "BROKER_REFUSES_RECIPIENT"


@pytest.mark.req("503-5.5-g")
def test_the_broker_must_let_the_message_type_pass() -> None:
    assert outcome(E2, broker("B1", message_types=("BP2",))) == "BROKER_REFUSES_MESSAGE_TYPE"
    assert outcome(E2, broker("B1", message_types=("BP1-A",))) == "INDIRECT:B1"
    assert outcome(E2, broker("B1", message_types=("BP*",))) == "INDIRECT:B1"


@pytest.mark.req("503-5.4-h")
def test_a_restriction_blocks_a_route_and_never_diverts_to_another_broker() -> None:
    recipient = endpoint("E2", path("BP1-A", "INDIRECT:B1"), path("*", "INDIRECT:B2"))
    assert outcome(recipient, B1, broker("B2")) == "INDIRECT:B1"
    closed = broker("B1", message_types=("OTHER",))
    assert outcome(recipient, closed, broker("B2")) == "BROKER_REFUSES_MESSAGE_TYPE"


def produced(restriction: Restriction, *, client: str = "E1", subject: str = "BP1-A") -> str:
    """How a broker answers a message of `client` to E2."""
    known = directory(endpoint("E1"), endpoint("E2"), endpoint("E3"))
    try:
        BrokerAccess(restriction).produce(
            known,
            client,
            "E2",
            sender_code=client,
            receiver_code="E2",
            subject=subject,
            at=NOW,
        )
    except Refusal as refusal:
        return refusal.rule.name
    return "accepted"


def restricted(
    components: tuple[str, ...] = (), message_types: tuple[str, ...] = ()
) -> Restriction:
    return Restriction(
        frozenset(ComponentCode(c) for c in components),
        tuple(MessageTypePattern(t) for t in message_types),
    )


@pytest.mark.req("503-5.4-a")
@pytest.mark.req("503-5.4-f")
def test_a_broker_admits_the_listed_endpoints_only() -> None:
    known = directory(endpoint("E1"), endpoint("E2"), endpoint("E3"))
    both = BrokerAccess(restricted(("E1", "E2")))
    assert both.connect(known, "E1", NOW).code == "E1"
    with pytest.raises(Refusal) as caught:
        both.connect(known, "E3", NOW)
    assert caught.value.rule is Rule.PEER_NOT_ALLOWED
    with pytest.raises(Refusal):
        BrokerAccess(restricted(("E2",))).connect(known, "E1", NOW)


@pytest.mark.req("503-5.4-b")
@pytest.mark.req("503-5.4-g")
def test_a_broker_lets_the_listed_message_types_pass_only() -> None:
    """The rule sees fields, not kinds: an acknowledgement carries the type of its original."""
    assert produced(restricted(message_types=("BP1-A",))) == "accepted"
    assert produced(restricted(message_types=("BP2",))) == "MESSAGE_TYPE_NOT_ALLOWED"


@pytest.mark.req("503-5.4-d", component="broker")
@pytest.mark.req("503-5.4-d", component="endpoint")
def test_an_empty_list_allows_all_while_the_other_still_restricts() -> None:
    assert produced(restricted()) == "accepted"
    assert produced(restricted(message_types=("X",))) == "MESSAGE_TYPE_NOT_ALLOWED"
    assert produced(restricted(components=("E1", "E2"))) == "accepted"
    assert produced(restricted(components=("E1", "E2")), client="E3") == "PEER_NOT_ALLOWED"
    assert outcome(E2, broker("B1", message_types=("BP1-A",))) == "INDIRECT:B1"
    assert outcome(E2, broker("B1", components=("E3",))) == "BROKER_REFUSES_SENDER"
    assert outcome(E2, broker("B1")) == "INDIRECT:B1"


@pytest.mark.req("503-5.4-e", component="broker")
@pytest.mark.req("503-5.4-e", component="endpoint")
def test_a_restricted_message_type_may_end_with_a_wildcard() -> None:
    assert produced(restricted(message_types=("BP1*",))) == "accepted"
    assert produced(restricted(message_types=("BP1*",)), subject="BP2-A") != "accepted"
    assert outcome(E2, broker("B1", message_types=("BP1*",))) == "INDIRECT:B1"
    assert outcome(E2, broker("B1", message_types=("BP2*",))) == "BROKER_REFUSES_MESSAGE_TYPE"
