"""MADES 1.1 cl. 3.5, 3.15, 3.16, 4 and 5 at the node, one rule after the other on one running node."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, generate_private_key

from gridpost.core.identifiers import MessageId
from gridpost.core.instant import Instant
from gridpost.core.journal import RefusalRow
from gridpost.core.message import InternalType
from gridpost.core.refusal import Refusal
from gridpost.wire.mades11 import message as message_form
from gridpost.wire.mades11.services import NAMESPACE
from gridpost.wire.x509 import Validity, public_key_bytes
from gridpost.wire.xml_text import element
from support.directory_process import TestRoot
from support.old_network import CONTACT, KINDS, OldEndpoint, OldSigner, TestNode, issued
from support.old_raw import Raw
from support.pki import rsa_key, shared_pki
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")

AUTHENTICATION, SIGNING, ENCRYPTION = KINDS


class Site:
    def __init__(self, node: TestNode, one: OldEndpoint, two: OldEndpoint) -> None:
        self.node, self.one, self.two = node, one, two
        self.raw = Raw(one)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestNode]:
    root = TestRoot(tmp_path_factory.mktemp("root"))
    options = {"directory": {"ttl": "60s"}, "transfers": {"max_size": 4000, "max_content": 5000}}
    node = TestNode(tmp_path_factory.mktemp("N1"), "N1", root, options=options)
    async with node.run():
        yield node


@pytest_asyncio.fixture(loop_scope="module")
async def site(node: TestNode) -> Site:
    node.clock.at = datetime.now(UTC)
    codes = [f"E{uuid4().hex[:8]}" for _ in range(2)]
    one, two = [await node.endpoint(code, key_name=f"E{n}") for n, code in enumerate(codes)]
    return Site(node, one, two)


@pytest.mark.req("m11-3.5.3-a", component="node")
@pytest.mark.req("m11-T14-a", component="node")
@pytest.mark.req("m11-5.6.1-e", component="node")
@pytest.mark.req("m11-5.6.1-f", component="node")
async def test_who_asks_is_known_first(site: Site) -> None:
    raw, last = site.raw, await site.raw.last()
    ids = set()
    for operation, text in (
        ("GetComponent", element("componentCode", "N1")),
        ("GetCertificate", element("componentCode", "N1") + element("type", "SIGNING")),
        ("ConfirmDownload", ""),
    ):
        assert await raw.refused(operation, text) == "INVALID_PARAMETERS"
        forged = re.sub("<token>[^<]*<", f"<token>{uuid4()}<", last)
        with pytest.raises(Refusal) as refused:
            await raw.call(operation, text + forged)
        # operation: errorCode: errorMessage, and errorDetails (errorID)
        assert refused.value.message.startswith(f"{operation}: AUTHENTICATION_ERROR: ")
        found = re.search(r"\(([0-9a-f-]{36})\)$", refused.value.details)
        assert found is not None
        ids.add(found[1])
    assert len(ids) == 3
    # Nodes among themselves have their certificates only.
    version = element("serviceMversion", "1")
    answer = await raw.call("GetAllDirectoryData", version)
    assert answer.body.findtext("nodeCode") == "N1"
    bare = last.replace(version, "")
    nil = bare + (
        '<serviceMversion xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:nil="true"/>'
    )
    for auth in (bare, nil):
        answer = await raw.call("GetComponent", element("componentCode", "N1") + auth)
        assert answer.body.find("component") is not None


@pytest.mark.req("m11-3.5.3-h", component="node")
@pytest.mark.req("m11-T53-a", component="node")
@pytest.mark.req("m11-T60-a", component="node")
@pytest.mark.req("m11-5.3.3.4-a", component="node")
async def test_tokens_and_codes_are_signed_with_an_own_valid_certificate(site: Site) -> None:
    one, two = site.one, site.two

    class Sha256(OldSigner):
        def sign(self, text: str) -> str:
            return b64encode(self.key.sign(text.encode(), PKCS1v15(), hashes.SHA256())).decode()

    wrong = [
        Sha256(one.certificates[AUTHENTICATION], one.keys[AUTHENTICATION]),
        OldSigner(two.certificates[AUTHENTICATION], two.keys[AUTHENTICATION]),
    ]
    for signer in wrong:
        session = one.session(home=False)
        session._signer = lambda s=signer: s  # type: ignore[misc]
        with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
            await session.component("N1")
    # The code of the endpoint is signed on its own, beside the token.
    raw, last, good = site.raw, await site.raw.last(), one.token_signer
    for code, signature, certificate_id in (
        (two.code, good.sign(two.code), good.certificate_id),
        (one.code, good.sign(two.code), good.certificate_id),
        (one.code, wrong[0].sign(one.code), good.certificate_id),
        (one.code, wrong[1].sign(one.code), wrong[1].certificate_id),
    ):
        text = (
            "<endpoints>" + element("code", code) + element("signature", signature)
            + element("certificateID", certificate_id) + "</endpoints>"
        )  # fmt: skip
        assert await raw.refused("DownloadMessages", text + last) == "AUTHENTICATION_ERROR"
    assert site.node.running is not None
    rows = await site.node.running.store.read(lambda unit: unit.journal.listed(0, 1000))
    assert sum(isinstance(r.row, RefusalRow) for r in rows) >= 4
    await site.node.ask("revoke", code=one.code, certificate_id=good.certificate_id, reason="lost")
    with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
        await one.session(home=False).component("N1")


@pytest.mark.req("m11-3.5.5-b", component="node")
@pytest.mark.req("m11-3.5.5-c", component="node")
@pytest.mark.req("m11-T61-a", component="node")
@pytest.mark.req("m11-T62-a", component="node")
@pytest.mark.req("m11-5.6.3.2-b", component="node")
async def test_an_uploaded_message_is_complete_and_in_order(site: Site) -> None:
    raw, last = site.raw, await site.raw.last()
    metadata, content = await site.one.message(site.two)
    before, after = message_form.encode(metadata)

    async def outcome(head: str, tail: str) -> str:
        try:
            answer = await raw.call("UploadMessages", head, tail + last, contents=(content,))
        except Refusal as refusal:
            return refusal.message.split(": ")[1]
        return answer.body.findtext("notUploadedMessages/errorCode") or "uploaded"

    names = ["messageID", "receiverCode", "businessType", "generated", "senderCode"]
    names += ["senderDescription", "internalType"]
    for name in names:
        pattern = f"<{name}>[^<]*</{name}>"
        head, tail = (re.sub(pattern, "", text, count=1) for text in (before, after))
        assert (head, tail) != (before, after)
        assert await outcome(head, tail) in ("INVALID_PARAMETERS", "VALIDATION_ERROR"), name
    for name, bad in (
        ("internalType", "OTHER"),
        ("generated", "yesterday"),
        ("senderCode", "a b"),
        ("messageMversion", "one"),
    ):
        tail = re.sub(f"<{name}>[^<]*<", f"<{name}>{bad}<", after, count=1)
        assert await outcome(before, tail) in ("INVALID_PARAMETERS", "VALIDATION_ERROR"), name
    swapped = re.sub(
        "(<generated>.*</generated>)(.*)(<senderCode>[^<]*</senderCode>)", r"\3\2\1", after
    )
    assert await outcome(before, swapped) == "INVALID_PARAMETERS"
    assert await outcome(before, after) == "uploaded"
    session = site.two.session()
    await session.connect()
    for kind in InternalType:
        if kind.is_acknowledgement and not kind.must_be_signed:
            made = site.two.acknowledgement(metadata, kind)
        elif kind.is_acknowledgement:
            made = await site.two.delivery_acknowledgement(metadata, content, site.one)
        else:
            made = await site.two.message(site.one, internal_type=kind)
        assert (await session.upload([made])).uploaded == (made[0].message_id,)


@pytest.mark.req("m11-3.5.5-e", component="node")
@pytest.mark.req("m11-T15-c", component="node")
@pytest.mark.req("m11-5.3.3.1-a", component="node")
@pytest.mark.req("m11-3.8-e", component="node")
async def test_sizes_and_mixed_transfers(site: Site) -> None:
    session, receiver = site.one.session(), site.two.session()
    metadata, _ = await site.one.message(site.two)
    over = replace(metadata, message_id=MessageId(str(uuid4())))
    try:
        answer = await session.upload([(over, b"x" * 5001)])
        assert [r.code for r in answer.refused] == ["VALIDATION_ERROR"]
    except Refusal as refusal:
        assert "VALIDATION_ERROR" in refusal.message
    exact = replace(metadata, message_id=MessageId(str(uuid4())))
    assert (await session.upload([(exact, b"x" * 5000)])).uploaded == (exact.message_id,)
    # One that is larger than a transfer comes alone.
    (found,), waiting = await receiver.download()
    assert (found[0].message_id, waiting) == (exact.message_id, 0)
    await receiver.confirm([exact.message_id])
    mixed = [(replace(metadata, message_id=MessageId(str(uuid4()))), b"y" * 1000) for _ in range(5)]
    back = site.one.acknowledgement(replace(metadata, sender_code=site.two.code))  # type: ignore[arg-type]
    assert len((await session.upload([*mixed, back])).uploaded) == 6
    sizes = []
    while (downloaded := await receiver.download())[0]:
        messages, _ = downloaded
        sizes.append(sum(len(body) for _, body in messages))
        await receiver.confirm([m.message_id for m, _ in messages])
    assert max(sizes) <= 4000
    assert sum(sizes) == 5001
    states = await site.node.states(site.two.code)
    assert {states[m.message_id] for m, _ in (*mixed, back)} == {"DELIVERED"}


@pytest.mark.req("m11-5.1.3-b", component="node")
@pytest.mark.req("m11-T34-a", component="node")
@pytest.mark.req("m11-T54-a", component="node")
@pytest.mark.req("m11-3.16.5-b", component="node")
@pytest.mark.req("m11-3.16.3.3-a", component="node")
@pytest.mark.req("m11-T59-a", component="node")
@pytest.mark.req("m11-5.6.1-d", component="node")
@pytest.mark.req("m11-5.1.3-a", component="node")
async def test_answers_of_the_directory(site: Site) -> None:
    raw, last, one = site.raw, await site.raw.last(), site.one
    answer = await raw.call("GetAuthenticationToken", element("componentCode", one.code))
    now = Instant.of(site.node.clock.now()).milliseconds
    ends = answer.body.findtext("expiration") or ""
    assert re.fullmatch("[0-9]{13}", ends)
    assert int(ends) > now
    assert answer.body.findtext("authToken")
    for kind in KINDS:
        asked = element("componentCode", one.code) + element("type", kind)
        asked += element("certificateID", one.certificate_id(kind))
        answer = await raw.call("GetCertificate", asked + last)
        assert answer.body.tag == f"{{{NAMESPACE}}}GetCertificateResponse"
        assert all(not str(e.tag).startswith("{") for e in answer.body.iterdescendants())
        found = await one.session().certificate(one.code, kind, one.certificate_id(kind))
        assert found is not None
        assert found[0].der == one.certificates[kind].der
        x509.load_der_x509_certificate(found[0].der)
        assert answer.body.findtext("certificate/expiration") == str(now + 60_000)
    for code, type_ in ((one.code, "ENDPOINT"), ("N1", "NODE")):
        answer = await raw.call("GetComponent", element("componentCode", code) + last)
        assert answer.body.findtext("component/type") == type_
        assert answer.body.findtext("component/expiration") == str(now + 60_000)


@pytest.mark.req("m11-3.15.1-a", component="node")
@pytest.mark.req("m11-3.16.2-a", component="node")
@pytest.mark.req("m11-3.16.2-b", component="node")
@pytest.mark.req("m11-3.15.2-c", component="node")
@pytest.mark.req("m11-3.16.7.2-a", component="node")
@pytest.mark.req("m11-3.16.7.2-b", component="node")
@pytest.mark.req("m11-3.16.1-a", component="node")
@pytest.mark.req("m11-3.16.4.1-c", component="node")
async def test_what_the_administrator_does_with_an_endpoint(site: Site) -> None:
    node, running = site.node, site.node.running
    assert running is not None
    versions = [running.directory.dversion]

    async def done(action: str, **form: Any) -> Any:
        told = await node.ask(action, **form)
        versions.append(running.directory.dversion)
        return told

    code = f"E{uuid4().hex[:8]}"
    keys = {kind: rsa_key(f"first {kind}") for kind in KINDS}
    form = node.register_form(code, keys) | CONTACT | {"code": code, "mversion": 1}
    first = issued(await done("register", **form))
    (authority,) = node.keys.authorities
    for certificate in first.values():
        parsed = x509.load_der_x509_certificate(certificate.der)
        key = parsed.public_key()
        assert isinstance(key, RSAPublicKey)
        assert key.key_size == 2048
        expected = f"{parsed.issuer.rfc4514_string()}{parsed.serial_number}"
        assert certificate.certificate_id == expected
        assert certificate.not_after <= authority.not_after
    small = generate_private_key(65537, 1024)
    weak = {"is": "key", "der": b64encode(public_key_bytes(small.public_key())).decode()}
    with pytest.raises(Refusal):
        await node.ask("renew", code=code, signing=weak)
    await done("update", **(CONTACT | {"code": code, "person": "Somebody else"}))
    more = {kind: rsa_key(f"second {kind}") for kind in KINDS}
    second = issued(await done("renew", code=code, **node.register_form(code, more)))
    held = running.directory.components[code].certificates
    assert len(held) == 6
    for kind in KINDS:
        assert second[kind].not_before < first[kind].not_after
        for certificate in (first[kind], second[kind]):
            session = site.one.session()
            found = await session.certificate(code, kind, certificate.certificate_id)
            assert found is not None
    await done("revoke", code=code, certificate_id=first[SIGNING].certificate_id, reason="lost")
    await done("remove", code=code, reason="gone")
    assert versions == sorted(set(versions))
    with pytest.raises(Refusal):
        await node.ask("update", **(CONTACT | {"code": "NOBODY"}))


@pytest.mark.req("m11-3.15.1-b", component="node")
@pytest.mark.req("m11-3.16.3.3-b", component="node")
@pytest.mark.req("m11-3.16.8-a", component="node")
async def test_certificates_of_an_external_authority(site: Site) -> None:
    now, code = site.node.clock.now(), f"E{uuid4().hex[:8]}"
    validity = Validity(now - timedelta(days=1), now + timedelta(days=30))
    outside = shared_pki().component(code, validity=validity, key_name="outside")
    by_kind = {c.kind: c for c in outside.certificates}
    key = rsa_key("outside authentication")
    form = site.node.register_form(code, {AUTHENTICATION: key}) | {
        kind.value.lower(): {"is": "certificate", "der": b64encode(by_kind[kind].der).decode()}
        for kind in (SIGNING, ENCRYPTION)
    }
    told = await site.node.ask("register", **(form | CONTACT | {"code": code, "mversion": 1}))
    assert issued(told)[SIGNING].der == by_kind[SIGNING].der
    for kind in (SIGNING, ENCRYPTION):
        found = await site.one.session().certificate(code, kind, by_kind[kind].certificate_id)
        assert found is not None
        assert found[0].der == by_kind[kind].der
    message = await site.one.message(
        OldEndpoint(code, site.node, {}, by_kind)  # only its encryption certificate is used
    )
    assert (await site.one.session().upload([message])).uploaded
    running = site.node.running
    assert running is not None
    for owner, certificate in (
        (code, by_kind[SIGNING]),
        (site.one.code, site.one.certificates[SIGNING]),
    ):
        await site.node.ask(
            "revoke", code=owner, certificate_id=certificate.certificate_id, reason="lost"
        )
        known = running.directory.components[owner].certificates
        assert [k.certificate.certificate_id for k in known if k.revoked] == [
            certificate.certificate_id
        ]


@pytest.mark.req("m11-4.1.4-c", component="node")
@pytest.mark.req("m11-4.1.4-e", component="node")
@pytest.mark.req("m11-4.2.3-a", component="node")
@pytest.mark.req("m11-4.1.2-d", component="node")
async def test_versions_of_messages(tmp_path: Path) -> None:
    node = TestNode(tmp_path / "N", "N1", TestRoot(tmp_path / "root"))
    for version, accepted in ((1, {1}), (2, {1, 2}), (3, {2, 3})):
        async with node.run(version):
            codes = [f"E{uuid4().hex[:8]}" for _ in range(2)]
            one, two = [
                await node.endpoint(code, key_name=f"E{n}", mversion=version)
                for n, code in enumerate(codes)
            ]
            session = one.session(mversion=version, service_mversion=version)
            messages = [await one.message(two, message_mversion=n) for n in (1, 2, 3, 99)]
            answer = await session.upload(messages)
            assert session.node_mversion == version
            taken = {m.message_mversion for m, _ in messages if m.message_id in answer.uploaded}
            assert taken == accepted
            assert all(r.fatal for r in answer.refused)
            got, _ = await two.session(mversion=version, service_mversion=version).download()
            assert {m.message_mversion for m, _ in got} == accepted


@pytest.mark.req("m11-T10-a", component="node")
async def test_a_revoked_signing_certificate_counts_elsewhere_after_synchronisation(
    tmp_path: Path,
) -> None:
    root = TestRoot(tmp_path / "root")
    a, b = TestNode(tmp_path / "A", "NA", root), TestNode(tmp_path / "B", "NB", root)
    async with a.run(), b.run():
        one, home, two = await a.endpoint("E1"), await a.endpoint("E3"), await b.endpoint("E2")
        for node in (a, b):
            await node.ask("import-nodes", file=f"NA {a.url}\nNB {b.url}\n")
            assert node.running is not None
            wanted = node.running.synchroniser._wanted
            await eventually(lambda w=wanted: not w.is_set())  # type: ignore[misc]
            await node.ask("synchronise")
        await a.ask("revoke", code="E1", certificate_id=one.certificate_id(SIGNING), reason="x")
        refused = await one.session().upload([await one.message(home)])
        assert [r.fatal for r in refused.refused] == [True]
        away = one.session(b)
        assert (await away.upload([await one.message(two)])).uploaded
        await b.ask("synchronise")
        refused = await away.upload([await one.message(two)])
        assert [r.fatal for r in refused.refused] == [True]


@pytest.mark.req("m11-3.11.3-b", component="node")
@pytest.mark.req("m11-T6-a", component="node")
@pytest.mark.req("m11-T6-b", component="node")
@pytest.mark.req("m11-T2-b", component="node")
async def test_states_of_messages_and_acknowledgements(site: Site) -> None:
    one, two = site.one, site.two
    sender, receiver = one.session(), two.session()
    messages = [await one.message(two) for _ in range(4)]
    await sender.upload(messages)
    delivered, received, failed, waiting = (m for m, _ in messages)
    answers = [
        await two.delivery_acknowledgement(*messages[0], one),
        two.acknowledgement(received),
        two.acknowledgement(failed, InternalType.FAILURE_ACKNOWLEDGEMENT),
    ]
    await receiver.upload(answers)
    states = await site.node.states(one.code)
    assert [states[m.message_id] for m in (delivered, received, failed, waiting)] == [
        "DELIVERED", "RECEIVED", "FAILED", "ACCEPTED"
    ]  # fmt: skip
    assert {states[m.message_id] for m, _ in answers} == {"ACCEPTED"}
    got, _ = await sender.download()
    await sender.confirm([m.message_id for m, _ in got])
    states = await site.node.states(one.code)
    assert {states[m.message_id] for m, _ in answers} == {"DELIVERED"}
    last = two.acknowledgement(waiting)
    await receiver.upload([last])
    site.node.clock.forward(timedelta(hours=2))
    await site.node.ask("expire")
    states = await site.node.states(one.code)
    assert states[last[0].message_id] == "FAILED"
    assert [states[m.message_id] for m in (delivered, received)] == ["DELIVERED", "RECEIVED"]
    assert {states[m.message_id] for m, _ in answers} == {"DELIVERED"}
