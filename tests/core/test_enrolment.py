"""The states of a registration on the component's side: the table decides, and nothing else."""

from dataclasses import replace

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.enrolment import (
    FINAL,
    TRANSITIONS,
    Enrolment,
    EnrolmentEvent,
    EnrolmentState,
    Home,
    advance,
    issued_for,
    request_for,
)
from gridpost.core.identifiers import ComponentCode
from gridpost.core.refusal import Refusal, Rule
from support.builders import CONTACT, HOME, certificate

KEYS = {CertificateKind.AUTHENTICATION: b"a", CertificateKind.SIGNING: b"s"}
REQUEST = request_for(ComponentCode("E1"), CONTACT, KEYS)
PREPARED = Enrolment(
    EnrolmentState.PREPARED,
    Home(HOME, ("https://cd.example",)),
    REQUEST,
    extension=False,
    connect_with=certificate(CertificateKind.AUTHENTICATION),
)


@pytest.mark.parametrize("state", EnrolmentState)
@pytest.mark.parametrize("event", EnrolmentEvent)
def test_every_pair_of_state_and_event_is_listed_or_refused(
    state: EnrolmentState, event: EnrolmentEvent
) -> None:
    before = replace(PREPARED, state=state)
    if (state, event) in TRANSITIONS:
        assert state not in FINAL
        assert advance(before, event).state is TRANSITIONS[state, event]
    else:
        with pytest.raises(Refusal) as caught:
            advance(before, event)
        assert caught.value.rule is Rule.REGISTRATION_DECIDED


def test_every_state_can_be_reached() -> None:
    assert {EnrolmentState.PREPARED, *TRANSITIONS.values()} == set(EnrolmentState)


def test_a_forgotten_request_loses_its_number_and_keeps_its_keys() -> None:
    submitted = advance(PREPARED, EnrolmentEvent.PENDING, registration_id="7")
    assert submitted.registration_id == "7"
    again = advance(submitted, EnrolmentEvent.FORGET)
    assert (again.registration_id, again.request) == ("", REQUEST)


def test_authorities_that_come_with_an_approval_are_remembered() -> None:
    authority = certificate(CertificateKind.INTEGRATED_CA, HOME)
    approved = advance(PREPARED, EnrolmentEvent.APPROVE, certificates=(authority,))
    assert approved.home.certificates == (authority,)
    assert approved.home.knowing((authority,)) == approved.home


def test_a_certificate_counts_for_the_kind_and_key_it_was_asked_for() -> None:
    mine = certificate(CertificateKind.AUTHENTICATION), certificate(CertificateKind.SIGNING)
    other = certificate(CertificateKind.SIGNING, "E2")
    keys = {mine[0].der: b"a", mine[1].der: b"s", other.der: b"x"}
    assert issued_for(REQUEST, (other, *mine), keys) == mine
    with pytest.raises(Refusal, match="SIGNING"):
        issued_for(REQUEST, (mine[0], other), keys)
    with pytest.raises(Refusal, match="AUTHENTICATION"):
        issued_for(REQUEST, (replace(mine[0], kind=CertificateKind.SIGNING), mine[1]), keys)


def test_external_certificates_stand_in_for_keys() -> None:
    signing = certificate(CertificateKind.SIGNING)
    request = request_for(ComponentCode("E1"), CONTACT, KEYS, (signing,))
    assert [key.kind for key in request.public_keys] == [CertificateKind.AUTHENTICATION]
    assert request.certificates == (signing,)
