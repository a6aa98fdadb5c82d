"""MADES 1.1 cl. 3.5 to 3.13 at the node: who may transfer what, and what becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import pytest_asyncio

from gridpost.core.certificate import CertificateKind
from gridpost.core.journal import TransferRow
from gridpost.core.message import InternalType
from gridpost.core.refusal import Refusal, Rule
from support.directory_process import TestRoot
from support.old_network import OldEndpoint, OldSigner, TestNode

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Site:
    """One node for all tests; each has two endpoints of its own."""

    def __init__(self, node: TestNode, one: OldEndpoint, two: OldEndpoint) -> None:
        self.node, self.one, self.two = node, one, two

    async def states(self) -> dict[str, str]:
        return await self.node.states(self.one.code, self.two.code)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TestNode]:
    node = TestNode(
        tmp_path_factory.mktemp("N1"),
        "N1",
        TestRoot(tmp_path_factory.mktemp("root")),
        options={
            "transfers": {"max_messages": 10},
            "messages": {"purge_after": "1h"},
            "messages.priorities": {"URGENT": 5},
            "messages.purge": {"GONE": "whole", "KEPT": "never"},
        },
    )
    async with node.run():
        yield node


@pytest_asyncio.fixture(loop_scope="module")
async def site(node: TestNode) -> Site:
    node.clock.at = datetime.now(UTC)  # TLS looks at the real one
    codes = [f"E{uuid4().hex[:8]}" for _ in range(2)]
    one, two = [await node.endpoint(code, key_name=f"E{n}") for n, code in enumerate(codes)]
    return Site(node, one, two)


@pytest.mark.req("m11-2.2-a", component="node")
@pytest.mark.req("m11-3.8-c", component="node")
@pytest.mark.req("m11-3.8-d", component="node")
@pytest.mark.req("m11-3.7-a", component="node")
@pytest.mark.req("m11-T38-a", component="node")
@pytest.mark.req("m11-T39-a", component="node")
@pytest.mark.req("m11-2.6-b", component="node")
@pytest.mark.req("m11-3.8-g", component="node")
async def test_a_message_waits_until_its_download_is_confirmed(site: Site) -> None:
    sender, receiver = site.one.session(), site.two.session()
    metadata, content = await site.one.message(site.two, b"\0\xffanything" * 1000)
    answer = await sender.upload([(metadata, content)])
    assert (answer.uploaded, answer.refused) == ((metadata.message_id,), ())
    first, waiting = await receiver.download()
    assert first == [(metadata, content)]
    assert waiting == 0
    again, _ = await receiver.download()
    assert again == first
    assert await site.states() == {metadata.message_id: "ACCEPTED"}
    await receiver.confirm([metadata.message_id])
    assert await receiver.download() == ([], 0)
    assert await site.states() == {metadata.message_id: "DELIVERED"}
    await receiver.confirm([metadata.message_id])
    await receiver.confirm([])
    assert site.node.running is not None
    rows = await site.node.running.store.read(lambda unit: unit.journal.read(0, 1000))
    outcomes = [
        r.row.outcome
        for r in rows
        if isinstance(r.row, TransferRow) and r.row.message_id == metadata.message_id
    ]
    assert outcomes == ["uploaded", "downloaded"]


@pytest.mark.req("m11-3.8-i", component="node")
@pytest.mark.req("m11-5.3.3.3-a", component="node")
@pytest.mark.req("m11-T36-a", component="node")
@pytest.mark.req("m11-T73-a", component="node")
@pytest.mark.req("m11-T73-c", component="node")
@pytest.mark.req("m11-T3-d", component="node")
@pytest.mark.req("m11-T3-e", component="node")
@pytest.mark.req("m11-T4-b", component="node")
@pytest.mark.req("m11-5.3.3.2-a", component="node")
async def test_every_uploaded_id_is_in_exactly_one_list(site: Site) -> None:
    good = await site.one.message(site.two)
    nobody = replace(good[0], message_id="11111111-1111-4111-8111-111111111111", receiver_code="NO")  # type: ignore[arg-type]
    foreign = await site.two.message(site.one)
    stolen = replace(
        foreign[0],
        message_id="33333333-3333-4333-8333-333333333333",
        sender_code=site.one.code,
        receiver_code=site.two.code,
    )  # type: ignore[arg-type]
    unsigned = replace(
        good[0],
        message_id="22222222-2222-4222-8222-222222222222",
        processors=(),  # type: ignore[arg-type]
    )
    session = site.one.session()
    await session.upload([good])
    sent = [good, (nobody, b"x"), (stolen, b"x"), foreign, (unsigned, b"x")]
    answer = await session.upload(sent)
    assert answer.uploaded == (good[0].message_id,)
    assert {r.message_id for r in answer.refused} == {
        nobody.message_id, foreign[0].message_id, unsigned.message_id,
    } | {stolen.message_id}  # fmt: skip
    assert all(r.fatal for r in answer.refused)
    assert {r.code for r in answer.refused} <= {"VALIDATION_ERROR", "AUTHENTICATION_ERROR"}
    assert await site.states() == {good[0].message_id: "ACCEPTED"}
    assert site.node.running is not None
    rows = await site.node.running.store.read(lambda unit: unit.journal.listed(0, 100))
    logged = {r.row.refusal_id for r in rows if r.row.KIND == "refusal"}  # type: ignore[attr-defined]
    assert {r.error_id for r in answer.refused} <= logged


@pytest.mark.req("m11-3.8-a", component="node")
@pytest.mark.req("m11-T15-d", component="node")
async def test_what_cannot_be_stored_is_not_confirmed_and_not_fatal(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.node.running is not None
    session = site.one.session()
    await session.connect()
    store = site.node.running.store

    async def full(work: object) -> None:
        raise Refusal(Rule.STORE_FULL, "the disk is full")

    message = await site.one.message(site.two)
    monkeypatch.setattr(store, "run", full)
    answer = await session.upload([message])
    assert [(r.fatal, r.code) for r in answer.refused] == [(False, "INTERNAL_ERROR")]
    monkeypatch.undo()
    assert (await session.upload([message])).uploaded == (message[0].message_id,)


@pytest.mark.req("m11-3.5.4-c", component="node")
@pytest.mark.req("m11-T15-e", component="node")
async def test_one_transfer_of_a_kind_at_a_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.node.running is not None
    store = site.node.running.store
    go, entered, real = asyncio.Event(), asyncio.Event(), store.run

    async def slow(work: object) -> object:
        entered.set()
        await go.wait()
        return await real(work)  # type: ignore[arg-type]

    session, other = site.one.session(), site.two.session()
    message, back = await site.one.message(site.two), await site.two.message(site.one)
    await session.connect()
    await other.connect()
    monkeypatch.setattr(store, "run", slow)
    first = asyncio.create_task(session.upload([message]))
    await entered.wait()
    monkeypatch.undo()
    with pytest.raises(Refusal, match="CONCURRENT_ERROR"):
        await session.upload([message])
    assert (await other.upload([back])).uploaded
    assert (await session.download())[0] == [back]
    go.set()
    assert (await first).uploaded == (message[0].message_id,)
    assert (await session.upload([message])).uploaded == (message[0].message_id,)


@pytest.mark.req("m11-T38-b", component="node")
@pytest.mark.req("m11-3.13-a", component="node")
@pytest.mark.req("m11-3.13-b", component="node")
async def test_bulk_limits_priority_and_order(site: Site) -> None:
    session, receiver = site.one.session(), site.two.session()
    low = [await site.one.message(site.two) for _ in range(12)]
    high = [await site.one.message(site.two, message_type="URGENT") for _ in range(3)]
    for batch in (low[:10], low[10:], high):
        assert len((await session.upload(batch)).uploaded) == len(batch)
    expected = [m[0].message_id for m in (*high, *low)]
    received, seen = [], []
    while True:
        messages, waiting = await receiver.download()
        if not messages:
            break
        seen.append((len(messages), waiting))
        received += [m.message_id for m, _ in messages]
        await receiver.confirm([m.message_id for m, _ in messages])
    assert received == expected
    assert seen == [(10, 5), (5, 0)]
    with pytest.raises(Refusal, match="more than 10"):
        await session.upload([await site.one.message(site.two) for _ in range(11)])


@pytest.mark.req("m11-3.10.4-a", component="node")
@pytest.mark.req("m11-3.10.4-b", component="node")
@pytest.mark.req("m11-3.10.4-c", component="node")
@pytest.mark.req("m11-3.9-c", component="node")
@pytest.mark.req("m11-T6-c", component="node")
@pytest.mark.req("m11-3.5.5-d", component="node")
async def test_acknowledgements_pass_and_a_faulty_one_stops(site: Site) -> None:
    metadata, content = await site.one.message(site.two)
    await site.one.session().upload([(metadata, content)])
    receiver = site.two.session()
    received = site.two.acknowledgement(metadata)
    formless = replace(site.two.acknowledgement(metadata)[0], related_message_id="")
    unknown = replace(site.two.acknowledgement(metadata)[0], receiver_code="NOBODY")  # type: ignore[arg-type]
    answer = await receiver.upload([received, (formless, b"-"), (unknown, b"-")])
    assert len(answer.uploaded) == 3
    states = await site.states()
    assert states[metadata.message_id] == "RECEIVED"
    assert states[received[0].message_id] == "ACCEPTED"
    assert states[formless.message_id] == states[unknown.message_id] == "FAILED"
    back, _ = await site.one.session().download()
    assert [m.message_id for m, _ in back] == [received[0].message_id]
    # Backwards never: a late delivery acknowledgement does not undo RECEIVED.
    kind = InternalType.FAILURE_ACKNOWLEDGEMENT
    await site.one.session().upload(
        [site.one.acknowledgement(replace(metadata, sender_code=site.two.code), kind)]
    )  # type: ignore[arg-type]
    assert (await site.states())[metadata.message_id] == "RECEIVED"


async def test_messages_expire(site: Site) -> None:
    message = await site.one.message(site.two)
    await site.one.session().upload([message])
    site.node.clock.forward(timedelta(hours=2))
    told = await site.node.ask("expire")
    assert message[0].message_id in told["expired"]
    assert await site.states() == {message[0].message_id: "FAILED"}
    assert (await site.two.session().download())[0] == []
    late = await site.one.session().upload(
        [await site.one.message(site.two, expiration_time=message[0].generated)]
    )
    assert late.refused[0].fatal


@pytest.mark.req("m11-3.6-d", component="node")
@pytest.mark.req("m11-3.6-e", component="node")
async def test_purge_by_business_type_and_archive(site: Site) -> None:
    session, receiver = site.one.session(), site.two.session()
    final = [
        await site.one.message(site.two, message_type=kind) for kind in ("GONE", "KEPT", "A01")
    ]
    await session.upload(final)
    await receiver.confirm([m.message_id for m, _ in final])
    waiting = await site.one.message(site.two, message_type="GONE")
    await session.upload([waiting])
    site.node.clock.forward(timedelta(hours=2))
    await site.node.ask("purge")
    ids = [m.message_id for m, _ in (*final, waiting)]
    assert set(await site.states()) == set(ids[1:])
    assert site.node.running is not None
    told = await site.node.ask("archive")
    assert told["messages"] >= 2
    from zipfile import ZipFile

    with ZipFile(told["file"]) as archive:
        names = set(archive.namelist())
        assert archive.read(f"{ids[1]}.content") == final[1][1]
    assert f"{ids[2]}.xml" in names
    assert f"{ids[2]}.content" not in names
    assert set(await site.states()) == {ids[3]}


@pytest.mark.req("m11-3.5.3-c", component="node")
@pytest.mark.req("m11-5.3.2-a", component="node")
@pytest.mark.req("m11-3.5.3-d", component="node")
@pytest.mark.req("m11-3.5.3-g", component="node")
@pytest.mark.req("m11-3.5.3-i", component="node")
@pytest.mark.req("m11-T15-b", component="node")
async def test_tokens(site: Site) -> None:
    session = site.one.session()
    await session.connect()
    tokens = {(await session._new_token())[0] for _ in range(5)}
    assert len(tokens) == 5
    kind, other = CertificateKind.AUTHENTICATION, CertificateKind.SIGNING
    wrong_key = OldSigner(site.one.certificates[kind], site.one.keys[other])
    wrong_kind = OldSigner(site.one.certificates[other], site.one.keys[other])
    wrong_owner = OldSigner(site.two.certificates[kind], site.two.keys[kind])
    for signer in (wrong_key, wrong_kind, wrong_owner):
        session = site.one.session(home=False)
        session._signer = lambda signer=signer: signer  # type: ignore[misc]
        with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
            await session.component(site.two.code)
    session = site.one.session()
    session._token = ("11111111-1111-4111-8111-111111111111", session._now() + timedelta(hours=1))
    with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
        await session.component(site.two.code)
    session = site.one.session()
    _, ends = await session._new_token()
    assert ends > site.node.clock.now()
    await session.connect()
    token = session._token
    site.node.clock.forward(timedelta(hours=1, seconds=1))
    assert token is not None
    session._token = (token[0], site.node.clock.now() + timedelta(hours=1))
    with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
        await session.component(site.two.code)


@pytest.mark.req("m11-T3-f", component="node")
@pytest.mark.req("m11-T10-b", component="node")
@pytest.mark.req("m11-T10-c", component="node")
@pytest.mark.req("m11-T10-d", component="node")
async def test_revoked_certificates(site: Site) -> None:
    one, two = site.one, site.two
    session = one.session()
    pending = await one.message(two)
    await session.upload([pending])
    signing, encryption = CertificateKind.SIGNING, CertificateKind.ENCRYPTION
    before = site.node.running.directory.dversion if site.node.running else 0
    for owner, kind in ((one, signing), (two, encryption)):
        other = await two.message(one)
        await site.node.ask(
            "revoke", code=owner.code, certificate_id=owner.certificate_id(kind), reason="lost"
        )
        answer = await session.upload([await one.message(two)])
        assert [(r.fatal, r.code) for r in answer.refused] == [(True, "AUTHENTICATION_ERROR")]
        if kind is signing:
            assert (await two.session().upload([other])).uploaded
    assert site.node.running is not None
    assert site.node.running.directory.dversion == before + 2
    # What was pending before is delivered.
    assert [m.message_id for m, _ in (await two.session().download())[0]] == [pending[0].message_id]
    authentication = CertificateKind.AUTHENTICATION
    await site.node.ask(
        "revoke", code=two.code, certificate_id=two.certificate_id(authentication), reason="lost"
    )
    with pytest.raises(Refusal, match="AUTHENTICATION_ERROR"):
        await two.session().download()
    # Table 10: after renewal what waited is delivered.
    from support.old_network import issued
    from support.pki import rsa_key

    key = rsa_key("E2 renewed")
    told = await site.node.ask(
        "renew", code=two.code, **site.node.register_form(two.code, {authentication: key})
    )
    two.certificates |= issued(told)
    two.keys[authentication] = key
    assert [m.message_id for m, _ in (await two.session().download())[0]] == [pending[0].message_id]
