"""503 cl. 8.3.2 and 8.5: the INTEGRATED CA below the ROOT CA, and the directory's own certificate."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.directory_keys import DirectoryKeys, issued_by
from gridpost.core.certificate import CertificateKind
from gridpost.core.refusal import Refusal
from gridpost.services.component_directory.authority import Authority
from gridpost.wire.x509 import (
    Issuer,
    Purpose,
    Validity,
    build_root_ca,
    issue,
    verify_chain,
)
from support.directory_process import DirectoryProcess, TestRoot
from support.pki import TestPki, rsa_key, signs, spki

CD = "component-directory"
DAY = timedelta(days=1)


@pytest.fixture
def keys(tmp_path: Path) -> DirectoryKeys:
    process = DirectoryProcess(
        tmp_path / "cd-1", "CD-1", TestRoot(tmp_path / "ca"), certified=False
    )
    return DirectoryKeys(read_directory_configuration(process.file))


@pytest.mark.req("503-8.3.2-b")
def test_only_an_authority_that_the_root_has_signed_is_taken_at_set_up(
    keys: DirectoryKeys, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    root = TestRoot(tmp_path / "ca")
    own = rsa_key("self-signed")
    validity = Validity(now - DAY, now + DAY)
    self_signed = build_root_ca("CD-1 INTEGRATED CA", spki(own), signs(own), validity)
    elsewhere = TestPki("CD-1", root="ELSEWHERE", now=now).integrated_ca
    another = TestPki("CD-2", now=now).integrated_ca
    # A certificate of ours that is no CA.
    leaf = issue(
        CertificateKind.AUTHENTICATION,
        "CD-1",
        spki(own),
        Issuer(self_signed, signs(own)),
        validity,
    )
    for wrong in (self_signed, elsewhere, another, leaf, root.certificate):
        with pytest.raises(Refusal):
            keys.install_authority(wrong, now)
        assert keys.authorities == []
    root.certify(keys)
    (authority,) = keys.authorities
    assert issued_by(authority, root.certificate)
    # It may sign: what it issues is trusted by whoever trusts the root.
    (issuer,) = keys.issuers()
    signed = issue(CertificateKind.AUTHENTICATION, "E1", spki(own), issuer, validity)
    verify_chain([signed, authority.der], [root.certificate], now, Purpose.CLIENT)


@pytest.mark.req("503-8.5-a", component=CD)
async def test_the_directory_renews_its_own_certificate_before_the_old_one_ends(
    keys: DirectoryKeys, tmp_path: Path
) -> None:
    root = TestRoot(tmp_path / "ca")
    root.certify(keys)
    authority = Authority(keys.issuers(), 100 * DAY)
    start = datetime.now(UTC)
    assert await keys.renew_own(authority, start, 30 * DAY)
    (old,) = keys.own
    assert not await keys.renew_own(authority, start + 60 * DAY, 30 * DAY)
    later = start + 75 * DAY
    assert await keys.renew_own(authority, later, 30 * DAY)
    assert later < old.not_after
    shown = keys.credentials(lambda: later)()
    assert shown.chain[0] != old.der
    verify_chain(shown.chain, [root.certificate], later, Purpose.SERVER)
    # Both are published while both are valid.
    assert {c.der for c in keys.published()} >= {old.der, shown.chain[0]}
