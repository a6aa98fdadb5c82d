"""Documents between two endpoint processes, through a broker process and directly."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from gridpost.core.refusal import Refusal, Rule
from support.network import API_PASSWORD, CLI, Network, cli, until_status
from support.token import LABEL, PIN, make_token, module
from support.token_network import ended, register
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.req("503-4.5.1-a")
@pytest.mark.req("503-5.3-b", component="endpoint")
@pytest.mark.req("503-5.3-b", component="component-directory")
async def test_a_document_reaches_the_application_of_another_endpoint(net: Network) -> None:
    """E1 knows E2's message-path only because E2 pushed it and the directory published it."""
    async with net.api("E1") as sender, net.api("E2") as recipient:
        message_id = await sender.send("E2", "A01", b"<schedule/>", ba_message_id="plan-1")
        await until_status(sender, message_id, "DELIVERED")
        received = await recipient.receive("A01")
        assert received is not None
        assert (received.content, received.message.sender) == (b"<schedule/>", "E1")
        assert received.message.ba_message_id == "plan-1"
        await recipient.confirm(message_id)
        await until_status(sender, message_id, "RECEIVED")
        explained = await sender.explain(message_id)
        assert explained.must_act == "nobody"


async def test_one_id_finds_a_message_in_the_logs_of_all_components_it_passes(
    net: Network,
) -> None:
    async with net.api("E1") as sender, net.api("E2") as recipient:
        message_id = await sender.send("E2", "LOGGED", b"<schedule/>")
        await until_status(sender, message_id, "DELIVERED")
        await recipient.confirm(message_id)
        await until_status(sender, message_id, "RECEIVED")

    def told(code: str) -> list[dict[str, str]]:
        lines = net.components[code].lines
        return [line for line in lines if line.get("correlation_id") == message_id]

    def passed() -> list[tuple[str, str, bool]]:
        return [
            (line["event"], line["sender"], line["message_id"] == message_id) for line in told("B1")
        ]

    came, went = "message came in", "message went out"
    # The message, then its delivery and its receive acknowledgement under IDs of their own.
    ways = [(came, "E1", True), (went, "E1", True), *2 * [(came, "E2", False), (went, "E2", False)]]
    await eventually(lambda: sorted(passed()) == sorted(ways), 60)

    def steps(code: str) -> list[str]:
        return [line["step"] for line in told(code) if "step" in line]

    ends = ["ACCEPT", "TRANSFERRED", "DELIVERY_ACKNOWLEDGED", "RECEIVE_ACKNOWLEDGED"]
    await eventually(lambda: sorted(steps("E1")) == sorted(ends), 60)
    await eventually(lambda: steps("E2") == ["VERIFIED", "CONFIRM"], 60)
    for code, first in (("E1", "message accepted"), ("E2", "message arrived")):
        assert told(code)[0]["event"] == first
        assert {line["component"] for line in told(code)} == {code}
    acknowledged = {line["message_id"] for line in told("B1")} - {message_id}
    sent = [line for line in told("E2") if line["event"] == "acknowledgement sent"]
    assert {line["message_id"] for line in sent} == acknowledged
    known = {line["acknowledgement_id"] for line in told("E1") if "acknowledgement_id" in line}
    assert known == acknowledged


@pytest.mark.req("503-4.4.1-b")
async def test_a_direct_transfer_needs_no_broker(net: Network) -> None:
    async with net.api("E1") as sender, net.api("E2") as recipient:
        message_id = await sender.send("E2", "DIRECT-A", b"straight")
        await until_status(sender, message_id, "DELIVERED")
        assert (await sender.status(message_id)).route == "DIRECT"
        await recipient.confirm(message_id)
        await until_status(sender, message_id, "RECEIVED")


async def test_the_way_to_a_recipient_can_be_tested(net: Network) -> None:
    async with net.api("E1") as sender:
        message_id = await sender.test("E2", "A01")
        await until_status(sender, message_id, "DELIVERED")


@pytest.mark.req("503-5.8.2-c")
async def test_a_repeated_request_sends_nothing_twice(net: Network) -> None:
    async with net.api("E1") as sender:
        first = await sender.send("E2", "KEYED", b"once", key="k-1")
        assert await sender.send("E2", "KEYED", b"once", key="k-1") == first
        with pytest.raises(Refusal) as refused:
            await sender.send("E2", "KEYED", b"other", key="k-1")
        assert refused.value.rule is Rule.CONVERSATION_REUSED


async def test_whoever_is_not_known_is_turned_away(net: Network) -> None:
    async with net.api("E1", password="wrong") as stranger:
        with pytest.raises(Refusal) as refused:
            await stranger.send("E2", "A01", b"x")
        assert refused.value.rule is Rule.ACCESS_DENIED


async def test_status_changes_are_told_as_they_happen(net: Network) -> None:
    async with net.api("E1") as sender, net.api("E2") as recipient:
        seen: list[str] = []
        ready = asyncio.Event()

        async def watch() -> None:
            async for event in sender.events():
                if event.name == "status" and event.data["messageType"] == "WATCHED":
                    seen.append(event.data["status"])
                ready.set()
                if seen and seen[-1] == "RECEIVED":
                    return

        watching = asyncio.create_task(watch())
        for _ in range(100):
            if ready.is_set():
                break
            await sender.test("E2", "A01")
            await asyncio.sleep(0.1)
        message_id = await sender.send("E2", "WATCHED", b"x")
        await until_status(sender, message_id, "DELIVERED")
        await recipient.confirm(message_id)
        await asyncio.wait_for(watching, 60)
        assert seen == ["ACCEPTED", "DELIVERED", "RECEIVED"]


@pytest.mark.req("503-4.5.4-c")
async def test_a_proof_is_exported_and_verified_offline(net: Network, tmp_path: Path) -> None:
    file, url = tmp_path / "message.proof", f"http://127.0.0.1:{net.ports['E1']}"
    async with net.api("E1") as sender, net.api("E2") as recipient:
        message_id = await sender.send("E2", "PROVEN", b"the document")
        await until_status(sender, message_id, "DELIVERED")
        await recipient.confirm(message_id)
        await until_status(sender, message_id, "RECEIVED")
    words = ("--url", url, "--user", "app")
    await cli("proof", "export", message_id, "--out", str(file), *words,
              GRIDPOST_PASSWORD=API_PASSWORD)  # fmt: skip
    (root,) = (net.folder / "root").glob("*.pem")
    verdict = await cli("proof", "verify", str(file), "--root", str(root))
    assert verdict["origin"]["standing"] == verdict["receipt"]["standing"] == "proven"
    assert verdict["received_claimed_at"]
    stranger = await cli("proof", "verify", str(file), expect=1)
    assert stranger["origin"]["standing"] == "signature valid, issuer not trusted here"


async def test_the_commands_of_an_application_do_the_same(net: Network, tmp_path: Path) -> None:
    document = tmp_path / "document"
    document.write_bytes(b"by command")
    secret = {"GRIDPOST_USER": "app", "GRIDPOST_PASSWORD": API_PASSWORD}
    at = {code: {"GRIDPOST_URL": f"http://127.0.0.1:{net.ports[code]}"} for code in ("E1", "E2")}
    sent = await cli("send", "E2", "CMD", str(document), **secret, **at["E1"])
    async with net.api("E1") as sender:
        await until_status(sender, sent["messageID"], "DELIVERED")
        got = await cli("receive", "CMD", "--out", str(tmp_path / "got"), **secret, **at["E2"])
        assert got["message"]["messageID"] == sent["messageID"]
        assert (tmp_path / "got").read_bytes() == b"by command"
        await cli("confirm", sent["messageID"], **secret, **at["E2"])
        await until_status(sender, sent["messageID"], "RECEIVED")
    status = await cli("status", sent["messageID"], **secret, **at["E1"])
    assert status["status"] == "RECEIVED"
    trace = await cli("trace", sent["messageID"], **secret, **at["E1"])
    assert trace["trace"][0]["event"] == "ACCEPT"
    explained = await cli("explain", sent["messageID"], **secret, **at["E1"])
    assert explained["mustAct"] == "nobody"


async def test_explain_names_the_broker_that_is_down_and_delivery_goes_on_when_it_is_back(
    net: Network,
) -> None:
    await net.components["B1"].kill()
    async with net.api("E1") as sender:
        message_id = await sender.send("E2", "LATER", b"wait for it")
        async with asyncio.timeout(60):
            while (explained := await sender.explain(message_id)).must_act == "nobody":
                await asyncio.sleep(0.1)
        assert explained.must_act == "the operator of the broker"
        assert "B1" in explained.summary
        await net.components["B1"].start()
        await until_status(sender, message_id, "DELIVERED", seconds=90)


@pytest.mark.req("503-4.4.2-b")
async def test_a_changed_path_leads_later_messages_another_way(net: Network) -> None:
    file = net.components["E2"].file
    before = file.read_text(encoding="utf-8")
    changed = before + '[[paths]]\nmessage_type = "MOVED"\npath = "DIRECT"\n'
    async with net.api("E1") as sender:
        first = await sender.send("E2", "MOVED", b"x")
        assert (await sender.status(first)).route == "INDIRECT:B1"
        part = file.with_suffix(".part")
        part.write_text(changed, encoding="utf-8")
        part.rename(file)
        async with asyncio.timeout(60):
            while True:
                later = await sender.send("E2", "MOVED", b"x")
                if (await sender.status(later)).route == "DIRECT":
                    break
                await asyncio.sleep(0.2)
        await until_status(sender, later, "DELIVERED")
        await until_status(sender, first, "DELIVERED")


async def test_an_orderly_stop_ends_cleanly_and_a_restart_goes_on(net: Network) -> None:
    async with net.api("E1") as sender:
        ids = [await sender.send("E2", "A01", b"%d" % number) for number in range(20)]
    running = net.components["E1"]
    assert await running.stop() == 0
    assert running.logged("stopping")
    await running.start()
    async with net.api("E1") as sender:
        for message_id in ids:
            await until_status(sender, message_id, "DELIVERED")


@pytest.mark.timeout(600)
async def test_messages_are_signed_in_a_token_that_alone_has_the_key(
    net: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOFTHSM2_CONF", "")
    make_token(tmp_path)
    both, signing = '["SIGNING", "ENCRYPTION"]', '["SIGNING"]'
    section = f'[keys.token]\nmodule = "{module()}"\nlabel = "{LABEL}"\npin = "{PIN}"\n'
    running = await net.endpoint(
        "E3", "INDIRECT:B1", last=f"{section}kinds = {both}\n", enrol=False
    )
    # SoftHSM 2.6 has OAEP with SHA-1 only: said before anybody is asked for a certificate.
    code, said = await register(net, running, "E3")
    assert code == 1
    assert f"the token '{LABEL}' cannot open session keys with" in said
    text = running.file.read_text(encoding="utf-8").replace(both, signing)
    running.file.write_text(text, encoding="utf-8")
    assert await register(net, running, "E3") == (0, "")
    keys = net.folder / "E3" / "keys"
    (record,) = (keys / "token").glob("*.json")
    assert json.loads(record.read_text(encoding="utf-8"))["kind"] == "SIGNING"
    assert not (keys / f"{record.stem}.key").exists()
    await net.start("E3")
    await net.known("E3", "E1")
    await net.known("E1", "E3")
    async with net.api("E3") as one, net.api("E1") as other:
        sent = await one.send("E1", "TOKEN", b"signed in a token")
        came = await other.send("E3", "TOKEN", b"acknowledged with its signature")
        await until_status(one, sent, "DELIVERED")
        await until_status(other, came, "DELIVERED")
    await running.stop()
    running.file.write_text(text.replace(f'"{LABEL}"', '"another"'), encoding="utf-8")
    code, said = await ended(*CLI, "endpoint", "run", "--config", str(running.file))
    assert code == 1
    assert "the token 'another' of" in said
