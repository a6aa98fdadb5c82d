"""Which certificate is used when there are several (503 cl. 8.5), and when one must warn."""

from datetime import timedelta

import pytest

from gridpost.core.certificate import CertificateKind, expiring, of_kind, select, still_published
from support.builders import NOW, certificate

DAY = timedelta(days=1)
SIGNING, ENCRYPTION = CertificateKind.SIGNING, CertificateKind.ENCRYPTION


@pytest.mark.req("503-8.5-e")
@pytest.mark.req("503-8.5-f")
@pytest.mark.parametrize("kind", [SIGNING, ENCRYPTION])
def test_of_several_valid_ones_the_first_to_expire_is_taken(kind: CertificateKind) -> None:
    old, new = certificate(kind, end=NOW + DAY), certificate(kind, end=NOW + 9 * DAY)
    gone = certificate(kind, start=NOW - 9 * DAY, end=NOW - DAY)
    future = certificate(kind, start=NOW + DAY / 2, end=NOW + 2 * DAY)
    other = certificate(CertificateKind.AUTHENTICATION, end=NOW + DAY / 2)
    every = [new, gone, future, other, old]
    assert select(every, kind, NOW) is old
    assert select(every, kind, NOW + DAY + timedelta(seconds=1)) is future
    assert select(every, kind, NOW + 3 * DAY) is new
    assert select(every, kind, NOW + 10 * DAY) is None
    assert of_kind(every, CertificateKind.AUTHENTICATION) == [other]


def test_both_ends_of_the_validity_belong_to_it() -> None:
    one = certificate(SIGNING, start=NOW, end=NOW + DAY)
    assert one.valid_at(NOW)
    assert one.valid_at(NOW + DAY)
    assert not one.valid_at(NOW - timedelta(microseconds=1))
    assert not one.valid_at(NOW + DAY + timedelta(microseconds=1))


def test_a_warning_comes_only_when_no_later_certificate_is_there() -> None:
    old, new = certificate(SIGNING, end=NOW + DAY), certificate(SIGNING, end=NOW + 90 * DAY)
    alone = certificate(ENCRYPTION, end=NOW + 2 * DAY)
    assert expiring([old, new, alone], NOW, 30 * DAY) == [alone]
    assert expiring([old], NOW, 30 * DAY) == [old]
    assert expiring([old], NOW, timedelta(hours=1)) == []


def test_an_expired_certificate_is_warned_of_until_there_is_a_later_one() -> None:
    old, new = certificate(SIGNING, end=NOW - DAY), certificate(SIGNING, end=NOW + 90 * DAY)
    assert expiring([old], NOW, 30 * DAY) == [old]
    assert expiring([old, new], NOW, 30 * DAY) == []


def test_publication_goes_on_for_the_configured_time_after_expiry() -> None:
    one = certificate(SIGNING, end=NOW)
    assert still_published(one, NOW + timedelta(hours=47), timedelta(hours=48))
    assert not still_published(one, NOW + timedelta(hours=49), timedelta(hours=48))
