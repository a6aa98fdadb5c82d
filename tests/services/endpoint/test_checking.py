"""Checks of documents before acceptance and before hand-over, by a real command and over real ICAP."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gridpost.core.checks import CheckedDocument, Finding, Stage, WhenDown
from gridpost.core.delivery import Event, Side, State, Status
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.journal import AdministrationRow
from gridpost.core.message_box import Search
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.checking import CheckRule
from gridpost.services.endpoint.dispatch import Dispatcher
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.operating import Operating
from gridpost.transports.check_command import CommandCheck
from gridpost.transports.icap import IcapCheck
from support.icap import IcapServer, icap_server
from support.post import TestEndpoint, World

SCRIPT = """
import os, sys
document = sys.stdin.buffer.read()
if os.environ["GRIDPOST_MESSAGE_TYPE"] == "CRASH": sys.exit(7)
if b"virus" in document:
    print("found a virus for", os.environ["GRIDPOST_RECEIVER_CODE"]); sys.exit(1)
"""


@pytest.fixture
def command(tmp_path: Path) -> CommandCheck:
    script = tmp_path / "check.py"
    script.write_text(SCRIPT, encoding="utf-8")
    return CommandCheck([sys.executable, "-I", str(script)])


def check(one: TestEndpoint, *rules: CheckRule) -> None:
    one.context.checking.change(rules)


async def stored(one: TestEndpoint) -> Sequence[object]:
    return await one.store.read(lambda work: work.box.search(Search(), 10).entries)


def operator(one: TestEndpoint) -> Operating:
    return Operating(one.context, one.submission, Dispatcher(one.context, one.transfer))


async def test_a_command_refuses_a_document_before_anything_is_stored(
    command: CommandCheck,
) -> None:
    world = World()
    one = world["E1"]
    check(one, CheckRule("scanner", command, message_types=(MessageTypePattern("BP*"),)))
    with pytest.raises(Refusal) as refused:
        await one.send("E2", b"a virus")
    assert refused.value.rule is Rule.DOCUMENT_REFUSED
    assert "found a virus for E2" in refused.value.message
    assert not refused.value.retryable
    assert list(await stored(one)) == []
    # Another document passes, and another message-type is not looked at.
    await one.send("E2", b"all is well")
    await one.send("E2", b"a virus", "OTHER")


async def test_a_large_document_reaches_a_command_that_does_not_read_it() -> None:
    document = CheckedDocument(Side.SENT, "E1", "E2", "A", b"x" * 5_000_000)
    assert await CommandCheck(["true"]).check(document) == Finding(True)
    assert await CommandCheck(["false"]).check(document) == Finding(False, "no reason given")


@pytest.mark.parametrize("argv", [["/nowhere/scanner"], ["sh", "-c", "exit 3"]])
async def test_a_command_that_cannot_say_is_down(argv: list[str]) -> None:
    with pytest.raises(Refusal) as failed:
        await CommandCheck(argv).check(CheckedDocument(Side.SENT, "E1", "E2", "A", b"x"))
    assert failed.value.rule is Rule.CHECK_FAILED


async def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    hangs = CommandCheck(["sh", "-c", f"sleep 600 & echo $! > {note}; wait"])
    one = World()["E1"]
    check(one, CheckRule("slow", hangs, timeout=5.0))
    with pytest.raises(Refusal) as refused:
        await one.send("E2")
    assert "gave no answer in 5 s" in refused.value.message
    child = int(note.read_text())
    async with asyncio.timeout(60):
        while _alive(child):
            await asyncio.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z" and os.path.exists(f"/proc/{pid}")


async def test_a_received_document_is_held_back_until_an_operator_decides(
    command: CommandCheck,
) -> None:
    world = World()
    one, two = world["E1"], world["E2"]
    check(two, CheckRule("scanner", command))
    bad = [await one.send("E2", b"a virus") for _ in range(2)]
    good = await one.send("E2", b"fine")
    await world.carry()
    # 503 Table 1 event 2: the endpoint has them; its applications get the good one only.
    assert [await one.status(m) for m in (*bad, good)] == [Status.DELIVERED] * 3
    handed = await two.handover.receive("BP1-A")
    assert (handed.content, handed.remaining) == (b"fine", 0)
    with pytest.raises(Refusal):
        await two.handover.content(bad[0])
    with pytest.raises(Refusal):
        await two.handover.confirm(bad[0])
    operating = operator(two)
    held = await operating.held_back()
    assert [entry.message_id for entry, _ in held] == bad
    assert "found a virus" in held[0][1]
    told = await Explaining(two.context, two.enquiry, list).explain(Side.RECEIVED, bad[0])
    assert "held back" in told.summary
    assert "virus" in told.summary
    await operating.release(bad[0], "olga", "a false alarm")
    await operating.drop(bad[1], "olga", "a real one")
    await world.carry()
    assert (await two.handover.receive("BP1-A")).content == b"a virus"
    assert await two.state(Side.RECEIVED, bad[1]) is State.REFUSED
    assert await one.status(bad[1]) is Status.FAILED
    assert [e for e, _ in await operating.held_back()] == []
    rows = [r for r in await two.journal() if isinstance(r, AdministrationRow)]
    assert [(r.actor, r.action, r.reason) for r in rows] == [
        ("olga", "document released", "a false alarm"),
        ("olga", "document dropped", "a real one"),
    ]
    for message_id in bad:
        with pytest.raises(Refusal) as twice:
            await operating.release(message_id, "olga")
        assert twice.value.rule is Rule.NOT_HELD_BACK


@pytest.mark.parametrize("when_down", list(WhenDown))
async def test_what_a_check_that_is_down_means_is_a_setting(when_down: WhenDown) -> None:
    world = World()
    one, two = world["E1"], world["E2"]
    down = CommandCheck(["/nowhere/scanner"])
    message_id = await one.send("E2")
    check(one, CheckRule("scanner", down, when_down=when_down))
    check(two, CheckRule("scanner", down, when_down=when_down))
    if when_down is WhenDown.WAIT:
        # Nothing is stored or lost: the sender still has it, and it is tried again.
        with pytest.raises(Refusal) as waits:
            await two.arrival.arrive(*await _sealed(world, one))
        assert (waits.value.rule, waits.value.retryable) == (Rule.CHECK_FAILED, True)
        assert list(await stored(two)) == []
    else:
        await world.carry()
        state = await two.state(Side.RECEIVED, message_id)
        assert state is (State.HELD_BACK if when_down is WhenDown.REFUSE else State.WAITING)
    if when_down is WhenDown.PASS:
        trace = await two.trace(message_id, Side.RECEIVED)
        assert "not checked by 'scanner'" in trace[0].detail
        sent = await one.send("E2")
        assert "not checked" in (await one.trace(sent))[0].detail
        return
    with pytest.raises(Refusal) as refused:
        await one.send("E2", b"another")
    wanted = Rule.CHECK_FAILED if when_down is WhenDown.WAIT else Rule.DOCUMENT_REFUSED
    assert refused.value.rule is wanted


async def _sealed(world: World, one: TestEndpoint):  # type: ignore[no-untyped-def]
    taken = []

    def keep(carried):  # type: ignore[no-untyped-def]
        taken.append(carried)

    world.post.bend = keep
    await one.transfer.round()
    return taken[0].data, taken[0].route


@pytest.mark.parametrize("size", [10, 1024, 700_000])
async def test_icap_sees_the_whole_document_after_a_preview(size: int) -> None:
    content = os.urandom(size)
    async with icap_server(IcapServer(lambda body: "clean")) as server:
        icap = IcapCheck(f"icap://127.0.0.1:{server.port}/scan", preview=1024)
        for side, method in ((Side.SENT, "REQMOD"), (Side.RECEIVED, "RESPMOD")):
            document = CheckedDocument(side, "E1", "E2", "A01", content)
            assert await icap.check(document) == Finding(True)
            asked = server.asked[-1]
            assert (asked.method, asked.body) == (method, content)
            assert asked.previewed == min(size, 1024)
            assert asked.continued == (size > 1024)
            assert asked.headers["allow"] == "204"
            assert b"/E2/A01 HTTP/1.1" in asked.http


@pytest.mark.parametrize("side", list(Side))
@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ("threat", "Eicar-Test-Signature"),
        ("block", "403 Forbidden"),
        ("change", "would change the document"),
        ("same", None),
    ],
)
async def test_an_icap_answer_of_200_passes_only_the_same_document(
    side: Side, verdict: str, reason: str | None
) -> None:
    async with icap_server(IcapServer(lambda body: verdict)) as server:
        icap = IcapCheck(f"icap://127.0.0.1:{server.port}/scan", preview=4)
        finding = await icap.check(CheckedDocument(side, "E1", "E2", "A01", b"a document"))
    assert finding.passed == (reason is None)
    assert reason is None or reason in finding.reason


@pytest.mark.parametrize("verdict", ["broken", "nonsense"])
async def test_an_icap_server_that_fails_is_down(verdict: str) -> None:
    async with icap_server(IcapServer(lambda body: verdict)) as server:
        icap = IcapCheck(f"icap://127.0.0.1:{server.port}/scan")
        with pytest.raises(Refusal) as failed:
            await icap.check(CheckedDocument(Side.SENT, "E1", "E2", "A01", b"a document"))
        assert failed.value.rule is Rule.CHECK_FAILED
    with pytest.raises(Refusal) as gone:
        await icap.check(CheckedDocument(Side.SENT, "E1", "E2", "A01", b"a document"))
    assert gone.value.rule is Rule.CHECK_FAILED


async def test_an_icap_server_may_refuse_after_the_preview() -> None:
    server = IcapServer(lambda body: "threat", early=lambda preview: b"EICAR" in preview)
    async with icap_server(server):
        icap = IcapCheck(f"icap://127.0.0.1:{server.port}/scan", preview=8)
        content = b"EICAR..." + b"x" * 1_000_000
        finding = await icap.check(CheckedDocument(Side.SENT, "E1", "E2", "A01", content))
    assert not finding.passed
    assert server.asked[0].body == content[:8]


async def test_only_so_many_documents_are_checked_at_once() -> None:
    server = IcapServer(lambda body: "clean", hold=asyncio.Event())
    async with icap_server(server):
        world = World()
        one = world["E1"]
        rule = CheckRule(
            "scanner",
            IcapCheck(f"icap://127.0.0.1:{server.port}/scan"),
            frozenset({Stage.ACCEPTANCE}),
            at_once=2,
        )
        check(one, rule)
        sending = [asyncio.create_task(one.send("E2", b"%d" % n)) for n in range(6)]
        async with asyncio.timeout(60):
            while server.at_once < 2:
                await asyncio.sleep(0.01)
        assert one.context.checking.view()[0]["under_way"] == 2
        assert server.hold is not None
        server.hold.set()
        await asyncio.gather(*sending)
        assert server.most_at_once == 2
        assert one.context.checking.view()[0]["passed"] == 6


async def test_a_duplicate_of_a_document_that_is_held_back_stays_one(command: CommandCheck) -> None:
    world = World()
    one, two = world["E1"], world["E2"]
    check(two, CheckRule("scanner", command))
    message_id = await one.send("E2", b"a virus")
    data, route = await _sealed(world, one)
    await two.arrival.arrive(data, route)
    await two.arrival.arrive(data, route)
    assert await two.state(Side.RECEIVED, message_id) is State.HELD_BACK
    events = [line.event for line in await two.trace(message_id, Side.RECEIVED)]
    assert events == [Event.HOLD_BACK, Event.ARRIVED_AGAIN]
