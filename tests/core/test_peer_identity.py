"""Whose certificate a peer shows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode
from gridpost.core.peer_identity import PeerIdentities, identify
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory, Subsystem

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
CD = ComponentCode("CD-1")
CA = b"integrated ca of CD-1"


def certificate(
    der: bytes,
    code: str = "E1",
    kind: CertificateKind = CertificateKind.AUTHENTICATION,
    start: datetime = NOW - 10 * DAY,
) -> Certificate:
    return Certificate(f"id of {der!r}", kind, der, start, NOW + 10 * DAY, code)


def component(
    code: str, *certificates: Certificate, kind: ComponentType = ComponentType.ENDPOINT
) -> Component:
    return Component(
        ComponentCode(code),
        kind,
        Contact("o", "p", "e@x", "1"),
        CD,
        Implementation("2"),
        certificates=certificates,
    )


E1 = component("E1", certificate(b"auth of E1"), certificate(b"sig", kind=CertificateKind.SIGNING))
HOME = component(
    "CD-1",
    certificate(CA, "CD-1 INTEGRATED CA", CertificateKind.INTEGRATED_CA),
    certificate(b"auth of CD-1", "CD-1"),
    kind=ComponentType.COMPONENT_DIRECTORY,
)


def directory(*components: Component, until: datetime | None = None) -> Directory:
    return Directory.of([Subsystem(CD, "c", components or (E1, HOME), until)])


def refused(
    leaf: Certificate, rule: Rule, issuer: bytes = CA, known: Directory | None = None
) -> None:
    with pytest.raises(Refusal) as caught:
        identify(leaf, issuer, known or directory(), NOW)
    assert caught.value.rule is rule


def test_the_component_is_who_publishes_exactly_this_certificate() -> None:
    assert identify(certificate(b"auth of E1"), CA, directory(), NOW) == E1
    assert PeerIdentities(directory()).identify(certificate(b"auth of CD-1"), CA, NOW) == HOME


def test_the_published_certificate_counts_whatever_name_it_carries() -> None:
    assert identify(certificate(b"auth of E1", code="somebody"), CA, directory(), NOW) == E1


def test_an_expired_certificate_identifies_nobody() -> None:
    leaf = replace(certificate(b"auth of E1"), not_after=NOW - DAY)
    refused(leaf, Rule.CERTIFICATE_EXPIRED)


def test_a_newer_certificate_of_the_home_directory_counts_before_it_is_published() -> None:
    leaf = certificate(b"renewed", start=NOW - DAY)
    assert identify(leaf, CA, directory(), NOW) == E1


def test_the_directory_itself_may_be_renewed_too() -> None:
    leaf = certificate(b"renewed", "CD-1", start=NOW - DAY)
    assert identify(leaf, CA, directory(), NOW) == HOME


def test_an_older_one_that_is_not_published_does_not_count() -> None:
    for start in (NOW - 10 * DAY, NOW - 11 * DAY):
        refused(certificate(b"old", start=start), Rule.CERTIFICATE_NOT_OF_COMPONENT)


def test_it_must_be_newer_than_every_published_one() -> None:
    both = replace(E1, certificates=(*E1.certificates, certificate(b"new", start=NOW - DAY)))
    leaf = certificate(b"between", start=NOW - 5 * DAY)
    refused(leaf, Rule.CERTIFICATE_NOT_OF_COMPONENT, known=directory(both, HOME))


def test_another_directory_cannot_issue_for_this_component() -> None:
    leaf = certificate(b"renewed", start=NOW - DAY)
    refused(leaf, Rule.CERTIFICATE_NOT_OF_COMPONENT, issuer=b"ca of CD-2")


def test_without_the_home_directory_in_the_copy_no_renewal_counts() -> None:
    leaf = certificate(b"renewed", start=NOW - DAY)
    refused(leaf, Rule.CERTIFICATE_NOT_OF_COMPONENT, known=directory(E1))


def test_an_unknown_name_is_nobody() -> None:
    refused(certificate(b"x", "E7", start=NOW), Rule.PEER_UNKNOWN)
    refused(certificate(b"x", "", start=NOW), Rule.PEER_UNKNOWN)


def test_a_certificate_published_for_signing_opens_no_connection() -> None:
    leaf = certificate(b"sig", start=NOW - DAY)
    refused(leaf, Rule.CERTIFICATE_NOT_OF_COMPONENT)


def test_data_whose_validity_has_ended_identifies_nobody() -> None:
    lapsed = directory(E1, HOME, until=NOW)
    refused(certificate(b"auth of E1"), Rule.DIRECTORY_DATA_LAPSED, known=lapsed)


def test_a_copied_certificate_belongs_to_the_component_it_names() -> None:
    thief = component("E2", certificate(b"auth of E1"))
    both = directory(thief, E1, HOME)
    assert identify(certificate(b"auth of E1"), CA, both, NOW) == E1
    refused(certificate(b"auth of E1", "neither"), Rule.CERTIFICATE_NOT_OF_COMPONENT, known=both)


def test_a_revoked_component_is_unknown() -> None:
    refused(certificate(b"auth of E1"), Rule.PEER_UNKNOWN, known=directory(HOME))
