"""The proof file: reads back what was written, and survives what strangers hand in."""

from __future__ import annotations

import io
import zipfile

import pytest

from gridpost.core.delivery import Side
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.evidence import Evidence
from gridpost.wire.proof_file import ProofFile, decode, encode
from gridpost.wire.seal.proof import Standing, verify_proof
from support.post import World, authority


async def exported(side: Side = Side.SENT) -> ProofFile:
    world = World()
    message_id = await world["E1"].send("E2", b"the document")
    await world.carry()
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    one = world["E1" if side is Side.SENT else "E2"]
    return await Evidence(one.context, lambda: [authority().root]).export(side, message_id)


async def test_a_proof_reads_back_equal() -> None:
    file = await exported()
    assert decode(encode(file)) == file
    assert encode(decode(encode(file))) == encode(file)


@pytest.mark.req("503-4.5.4-c")
async def test_the_file_alone_proves_origin_and_receipt_to_who_trusts_the_root() -> None:
    file = decode(encode(await exported()))
    verdict = verify_proof(file.proof, [authority().root])
    assert (verdict.origin.standing, verdict.receipt.standing) == (Standing.PROVEN,) * 2
    assert verdict.received_claimed_at is not None
    # The roots in the file are the exporter's: they convince nobody.
    assert verify_proof(file.proof, []).origin.standing is Standing.ISSUER_NOT_TRUSTED


@pytest.mark.req("503-4.5.4-b")
async def test_a_recipient_can_prove_who_issued_the_message() -> None:
    file = decode(encode(await exported(Side.RECEIVED)))
    verdict = verify_proof(file.proof, [authority().root])
    assert verdict.origin.standing is Standing.PROVEN
    assert verdict.receipt.standing is Standing.INCOMPLETE


async def test_the_directory_entries_used_are_in_it_with_their_content_id() -> None:
    file = await exported()
    assert {entry.code for entry in file.entries} == {"E1", "E2", "CD-1"}
    assert all(
        entry.content_id and entry.content_id.encode() in entry.document for entry in file.entries
    )


async def test_a_changed_document_is_not_proven() -> None:
    data = encode(await exported())
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, b"another one" if name == "document" else old.read(name))
    verdict = verify_proof(decode(changed.getvalue()).proof, [authority().root])
    assert verdict.origin.standing is Standing.NOT_PROVEN
    assert verdict.receipt.standing is Standing.NOT_PROVEN


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 nothing", b"x" * 1000])
def test_what_is_no_proof_file_is_refused(data: bytes) -> None:
    with pytest.raises(Refusal, match="cannot be read"):
        decode(data)


async def test_a_file_without_a_part_is_refused() -> None:
    data = encode(await exported())
    for missing in ("proof.json", "document", "message.xml", "acknowledgement.content"):
        changed = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(changed, "w") as new:
            for name in old.namelist():
                if name != missing:
                    new.writestr(name, old.read(name))
        with pytest.raises(Refusal, match="cannot be read"):
            decode(changed.getvalue())


@pytest.mark.req("503-4.5.4-c")
@pytest.mark.req("503-5.9-i")
@pytest.mark.parametrize("side", list(Side))
async def test_a_proof_outlives_its_parties_in_the_directory(side: Side) -> None:
    """What was used at delivery is archived: the peer is gone when the proof is made."""
    world = World()
    message_id = await world["E1"].send("E2", b"the document")
    await world.carry()
    await world["E2"].handover.confirm(message_id)
    await world.carry()
    one, peer = ("E1", "E2") if side is Side.SENT else ("E2", "E1")
    before = await Evidence(world[one].context, lambda: [authority().root]).export(side, message_id)
    world.directory = world.describe(without=peer)
    after = await Evidence(world[one].context, lambda: [authority().root]).export(side, message_id)
    assert encode(after) == encode(before)
    verdict = verify_proof(decode(encode(after)).proof, [authority().root])
    assert verdict.origin.standing is Standing.PROVEN
    if side is Side.SENT:
        assert verdict.receipt.standing is Standing.PROVEN
    assert {entry.code for entry in after.entries} == {"E1", "E2", "CD-1"}
