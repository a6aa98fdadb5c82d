"""MADES 1.1 cl. 3.7, 3.10.3: a message waits for an external signing device, and goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gridpost.assembly.clock import SystemClock
from gridpost.core.certificate import CertificateKind
from gridpost.core.delivery import Side
from gridpost.core.explanation import Actor, Explanation
from gridpost.core.journal import AcknowledgementRow, MessageRow
from gridpost.core.message import SIGNATURE, InternalType
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.awaited_token import AwaitedToken
from gridpost.stores.keys.pkcs11 import TokenAccess
from support.directory_process import TestRoot
from support.old_endpoint import OldGridpost
from support.old_network import OldEndpoint, TestNode
from support.token import LABEL, PIN, make_token, put_keys


@dataclass
class Device:
    """A token that can be taken away and put back."""

    access: TokenAccess
    folder: Path

    def take_away(self) -> None:
        import pkcs11

        (self.folder / "tokens").rename(self.folder / "away")
        (self.folder / "tokens").mkdir()
        pkcs11.lib(self.access.module).reinitialize()

    def put_back(self) -> None:
        (self.folder / "tokens").rmdir()
        (self.folder / "away").rename(self.folder / "tokens")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Device]:
    monkeypatch.setenv("SOFTHSM2_CONF", "")  # restored afterwards, for the token of other tests
    folder = tmp_path / "softhsm"
    folder.mkdir()
    access = make_token(folder)
    import pkcs11

    yield Device(access, folder)
    monkeypatch.undo()
    pkcs11.lib(access.module).reinitialize()


def with_device(folder: Path, endpoint: OldEndpoint, device: Device) -> OldGridpost:
    """Its SIGNING key is in the device and nowhere else."""
    put_keys(device.access, [endpoint.keys[CertificateKind.SIGNING]])
    token = {"module": device.access.module, "label": LABEL, "pin": PIN}
    one = OldGridpost(folder, endpoint, {"token": token})
    (folder / "papers" / "signing.key").unlink()
    return one


async def test_a_message_waits_in_verifying_for_the_device_and_goes_on_by_itself(
    tmp_path: Path, device: Device
) -> None:
    node = TestNode(tmp_path / "N", "N1", TestRoot(tmp_path / "root"), clock=SystemClock())  # type: ignore[arg-type]
    async with node.run():
        one = with_device(tmp_path / "E1", await node.endpoint("E1"), device)
        two = OldGridpost(tmp_path / "E2", await node.endpoint("E2"))
        async with two.run():
            async with one.run():
                signed = await one.send("E2", b"with the device")
                assert (await one.entry(signed)).delivery.state.value != "VERIFYING"
                assert await two.receive() == (signed, b"with the device")
            device.take_away()
            async with one.run():
                sent = await one.send("E2", b"without the device")
                entry = await one.entry(sent)
                assert entry.delivery.state.value == "VERIFYING"
                assert entry.metadata.processors_named(SIGNATURE) == ()
                assert "waits for the signing device" in (await one.trace(sent))[0].detail
                told = await until_told(one, Side.SENT, sent)
                assert told.summary.startswith("waits for the signing device: ")
                assert told.actor is Actor.US
                assert await message_rows(one, sent) == []
            # A restart changes nothing, nor does an attempt that finds the device still away.
            async with one.run():
                assert (await one.entry(sent)).delivery.state.value == "VERIFYING"
                device.put_back()
                entry = await one.until(sent, "DELIVERED", "RECEIVED")
                assert "device" not in (await explained(one, Side.SENT, sent)).summary
                assert await two.receive() == (sent, b"without the device")
                (processor,) = entry.metadata.processors_named(SIGNATURE)
                (row,) = await message_rows(one, sent)
                assert row.signature
                states = [step.state.value for step in await one.trace(sent)]
                accepted = states.index("ACCEPTED")
                assert set(states[:accepted]) == {"VERIFYING"}
            assert two.running is not None
            received = await two.entry(sent, Side.RECEIVED)
            assert received.metadata.processors_named(SIGNATURE) == (processor,)


@pytest.mark.req("m11-3.10.3-a", component="endpoint")
async def test_an_acknowledgement_waits_for_the_device_and_goes_on_by_itself(
    tmp_path: Path, device: Device
) -> None:
    node = TestNode(tmp_path / "N", "N1", TestRoot(tmp_path / "root"), clock=SystemClock())  # type: ignore[arg-type]
    async with node.run():
        one = OldGridpost(tmp_path / "E1", await node.endpoint("E1"))
        two = with_device(tmp_path / "E2", await node.endpoint("E2"), device)
        async with one.run():
            async with two.run():
                pass
            device.take_away()
            async with two.run():
                sent = await one.send("E2", b"for whoever cannot sign now")
                # The document itself waits for nothing.
                assert await two.receive() == (sent, b"for whoever cannot sign now")
                assert await acknowledgement_rows(two, sent, DELIVERY) == []
                told = await until_told(two, Side.RECEIVED, sent)
                assert "its acknowledgement waits for the signing device: " in told.summary
                assert told.actor is Actor.US
            assert (await one.entry(sent)).delivery.state.value not in ("DELIVERED", "RECEIVED")
            # A restart changes nothing, nor does an attempt that finds the device still away.
            async with two.run():
                assert await acknowledgement_rows(two, sent, DELIVERY) == []
                device.put_back()
                await one.until(sent, "DELIVERED", "RECEIVED")
                (row,) = await acknowledgement_rows(one, sent, DELIVERY)
                assert row.signature
                async with asyncio.timeout(60):
                    while not (own := await acknowledgement_rows(two, sent, DELIVERY)):
                        await asyncio.sleep(0.01)
                assert [one.signature for one in own] == [row.signature]
                assert "device" not in (await explained(two, Side.RECEIVED, sent)).summary


async def explained(one: OldGridpost, side: Side, message_id: str) -> Explanation:
    assert one.running is not None
    return await one.running.core.explaining.explain(side, message_id)


async def until_told(one: OldGridpost, side: Side, message_id: str) -> Explanation:
    """After the first attempt to transfer what is not signed."""
    async with asyncio.timeout(60):
        # Before that the trace alone speaks of the device.
        told = await explained(one, side, message_id)
        while all(step.name != "signature" for step in told.steps):
            await asyncio.sleep(0.01)
            told = await explained(one, side, message_id)
    assert "\n" not in told.summary
    return told


DELIVERY = InternalType.DELIVERY_ACKNOWLEDGEMENT


async def acknowledgement_rows(
    one: OldGridpost, message_id: str, kind: InternalType
) -> list[AcknowledgementRow]:
    assert one.running is not None
    rows = [r.row for r in await one.running.parts.store.read(lambda w: w.journal.read(0, 10_000))]
    return [
        row
        for row in rows
        if isinstance(row, AcknowledgementRow)
        and row.related_message_id == message_id
        and row.internal_type == kind
    ]


async def message_rows(one: OldGridpost, message_id: str) -> list[MessageRow]:
    assert one.running is not None
    rows = await one.running.parts.store.read(lambda work: work.journal.read(0, 10_000))
    return [r.row for r in rows if isinstance(r.row, MessageRow) and r.row.message_id == message_id]


async def test_without_a_device_a_missing_key_is_still_refused_at_the_start(tmp_path: Path) -> None:
    node = TestNode(tmp_path / "N", "N1", TestRoot(tmp_path / "root"))
    async with node.run():
        one = OldGridpost(tmp_path / "E1", await node.endpoint("E1"))
    (one.folder / "papers" / "signing.key").unlink()
    with pytest.raises(Refusal, match="no key and certificate for SIGNING"):
        async with one.run():
            pass


async def test_a_wrong_pin_is_shown_to_the_device_once(tmp_path: Path, device: Device) -> None:
    node = TestNode(tmp_path / "N", "N1", TestRoot(tmp_path / "root"))
    async with node.run():
        endpoint = await node.endpoint("E1")
    put_keys(device.access, [endpoint.keys[CertificateKind.SIGNING]])
    token = AwaitedToken(replace(device.access, pin="0000"))
    certificate = endpoint.certificates[CertificateKind.SIGNING]
    told = set()
    for _ in range(3):
        with pytest.raises(Refusal) as refused:
            token.sign(certificate, b"x")
        assert refused.value.rule is Rule.KEY_TOKEN
        told.add(refused.value.id)
    assert len(told) == 1
