"""503 cl. 5.1, 5.2, 5.4, 5.5: names, broker restriction, and acceptance of a message."""

from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.acceptance import accept
from gridpost.core.certificate import CertificateKind
from gridpost.core.identifiers import (
    ComponentCode,
)
from gridpost.core.refusal import Refusal, Rule
from support.accepting import B1, E2, outcome
from support.builders import (
    NOW,
    broker,
    certificate,
    directory,
    endpoint,
    path,
)


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
