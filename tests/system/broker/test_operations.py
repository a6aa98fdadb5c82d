"""What an operator sees and does: health, figures, views, reload, orderly stop."""

from __future__ import annotations

import asyncio
import json
import resource
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gridpost.core.journal import AdministrationRow
from gridpost.core.links import LinkRefused
from gridpost.stores.sqlite.database import connect_reader
from support import amqp_frames as amqp
from support.broker_process import BrokerNetwork, Inbox, broker_network, message
from support.edges import journal_of
from support.fake_directory import FakeDirectory
from support.waiting import eventually

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def figure(broker: BrokerNetwork, name: str) -> float:
    text = (await broker.ask("/metrics")).text
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


async def test_health_is_a_durable_write(broker: BrokerNetwork) -> None:
    answer = await broker.ask("/health")
    assert answer.status_code == 200
    found = answer.json()
    assert found["ok"] is True
    assert found["commit_ms"] > 0
    before = _probes(broker)
    await broker.ask("/health")
    assert _probes(broker) > before


def _probes(broker: BrokerNetwork) -> int:
    """What the broker wrote to prove that it can."""
    with closing(connect_reader(broker.home / "store")) as database:
        (found,) = database.execute("SELECT value FROM meta WHERE name = 'probe'").fetchone()
    return int(found)


async def test_figures_count_what_happens(broker: BrokerNetwork) -> None:
    sent = message(body=b"counted")
    await broker.send("E1", "E2", sent, sent, message(receiver="E9"))
    assert await figure(broker, 'gridpost_broker_messages_in_total{outcome="stored"}') == 1
    assert await figure(broker, 'gridpost_broker_messages_in_total{outcome="duplicate"}') == 1
    assert await figure(broker, 'gridpost_broker_refused_total{rule="RECEIVER_NOT_QUEUE"}') == 1
    assert await figure(broker, 'gridpost_broker_queue_messages{queue="E2"}') == 1
    assert await figure(broker, 'gridpost_broker_queue_age_seconds{queue="E2"}') > 0
    assert await figure(broker, "gridpost_broker_commit_seconds_count") >= 1
    inbox = Inbox()
    connection = await broker.connect("E2")
    await connection.attach_consumer("E2", inbox, credit=10)
    async with asyncio.timeout(60):
        while await figure(broker, 'gridpost_broker_messages_out_total{outcome="delivered"}') < 1:
            await asyncio.sleep(0.02)
    assert await figure(broker, "gridpost_broker_connections") == 1
    connection.close()
    await connection.lost


async def test_the_command_line_shows_queues_and_connections(broker: BrokerNetwork) -> None:
    connection = await broker.connect("E1")
    await connection.attach_producer("E2")
    config = ("--config", str(broker.file))
    broker.configure()  # with the port that the operations listener has
    (queue,) = [
        q for q in (await broker.cli("broker", "queues", *config))["queues"] if q["queue"] == "E2"
    ]
    assert (queue["producers"], queue["messages"]) == (1, 0)
    (shown,) = (await broker.cli("broker", "connections", *config))["connections"]
    assert (shown["component"], shown["links"]) == ("E1", 1)
    certificates = (await broker.cli("broker", "certificates", *config))["certificates"]
    assert [(c["kind"], c["valid"]) for c in certificates] == [("AUTHENTICATION", True)]
    checked = await broker.cli("check-config", str(broker.file))
    assert (checked["component"], checked["code"]) == ("broker", "B1")
    connection.close()
    await connection.lost


async def test_what_a_consumer_rejects_is_kept_for_the_operator(broker: BrokerNetwork) -> None:
    from gridpost.core.refusal import Refusal, Rule

    await broker.send("E1", "E2", message(body=b"unreadable"))
    inbox = Inbox(accept=False)
    connection = await broker.connect("E2")
    await connection.attach_consumer("E2", inbox, credit=10)
    await eventually(lambda: inbox.deliveries)
    inbox.deliveries[0].reject(Refusal(Rule.MALFORMED_XML, "cannot read it"))
    async with asyncio.timeout(60):
        while (await broker.queue("E2") or {}).get("held") != 1:
            await asyncio.sleep(0.02)
    assert await broker.depth("E2") == 0
    inbox.accept = True
    result = await broker.cli("broker", "release", "E2", "--config", str(broker.file))
    assert result == {"released": 1}
    await eventually(lambda: len(inbox.messages) == 2)
    connection.close()
    await connection.lost


@pytest.mark.req("503-10-j", component="broker")
async def test_a_mistake_in_the_file_changes_nothing_and_is_warned_of(
    broker: BrokerNetwork,
) -> None:
    connection = await broker.connect("E1")
    broker.configure(restriction={"components": ["not a code!"]})
    await eventually(lambda: broker.logged("configuration not reloaded"))
    assert not connection.lost.done()
    broker.configure(restriction={"components": ["E2"]})
    await asyncio.wait_for(connection.lost, 60)
    with pytest.raises(LinkRefused):
        await broker.connect("E1")
    broker.lines.clear()
    broker.configure(restriction={})
    await eventually(lambda: broker.logged("configuration reloaded"))


async def test_new_limits_count_for_connections_that_come_after_them(
    broker: BrokerNetwork,
) -> None:
    large = message(body=bytes(30_000))
    assert (await broker.send("E1", "E2", large))[0].taken
    broker.lines.clear()
    broker.configure(limits={"max_message_size": 20_000})
    await eventually(lambda: broker.logged("configuration reloaded"))
    peer = await broker.raw("E1")
    await peer.say(amqp.attach("one", 0, amqp.SENDER, "E2"))
    await peer.expect(amqp.ATTACH, amqp.FLOW)
    await peer.say(amqp.transfer(0, 0, message(body=bytes(30_000))))
    gone = await peer.expect(amqp.DETACH)
    assert amqp.condition(gone[2]) == "amqp:link:message-size-exceeded"
    await peer.close()
    broker.lines.clear()
    broker.configure(limits={})
    await eventually(lambda: broker.logged("configuration reloaded"))
    assert (await broker.send("E1", "E2", message(body=bytes(30_000))))[0].taken
    assert len(await broker.receive("E2", 2)) == 2


async def reloaded(broker: BrokerNetwork, **sections: Any) -> None:
    broker.lines.clear()
    broker.configure(**sections)
    await eventually(lambda: broker.logged("configuration reloaded"), 30)


@pytest.mark.req("503-10-a", component="broker")
async def test_the_journal_names_what_was_changed_and_from_what_to_what(
    broker: BrokerNetwork,
) -> None:
    await reloaded(broker, limits={"max_links": 7})

    def told() -> list[AdministrationRow]:
        rows = (row for row in journal_of(broker) if isinstance(row, AdministrationRow))
        return [row for row in rows if "limits.max_links" in row.after]

    await eventually(told)
    (row,) = told()
    assert (row.actor, row.action, row.target) == ("configuration file", "settings changed", "B1")
    # Beside it only the ports that the broker chose, where the file is written for the first time.
    assert json.loads(row.before)["limits.max_links"] == 64
    assert json.loads(row.after)["limits.max_links"] == 7
    assert "limits.credit" not in row.after
    await reloaded(broker, limits={})


async def synchronisations(broker: BrokerNetwork, seconds: float) -> int:
    """How often the broker asks its directory in this time."""
    before = sum(seen.path == "/api/v1/components" for seen in broker.directory.seen)
    await asyncio.sleep(seconds)
    return sum(seen.path == "/api/v1/components" for seen in broker.directory.seen) - before


@pytest.mark.req("503-7.7.3-a", component="broker")
async def test_a_new_cycle_of_synchronisation_counts_without_a_restart(
    broker: BrokerNetwork,
) -> None:
    await reloaded(broker, synchronisation={"cycle": "1h"})
    # With the change the broker asks at once; after that not for an hour.
    await asyncio.sleep(1)
    assert await synchronisations(broker, 2) == 0
    await reloaded(broker, synchronisation={"cycle": "100ms"})
    async with asyncio.timeout(60):
        while await synchronisations(broker, 1) < 3:
            pass
    # 503 cl. 5.4: what the directory says counts for the next attach.
    broker.endpoint("E7")
    await broker.synchronised()
    connection = await broker.connect("E1")
    assert (await connection.attach_producer("E7")).attached
    await broker.close_connections()
    await reloaded(broker, synchronisation={"cycle": "300ms"})


async def test_more_connections_than_before_get_the_descriptors_that_they_need(
    broker: BrokerNetwork,
) -> None:
    assert broker.process is not None
    pid = broker.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    few = 700
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, hard))
    await reloaded(broker, limits={"max_connections": 10_001})
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] > few
    await reloaded(broker, limits={})


async def test_a_change_that_needs_a_restart_is_warned_of(broker: BrokerNetwork) -> None:
    await reloaded(broker, store={"min_free": 0, "hard_limit": 2**40})
    (line,) = [one for one in broker.lines if one["event"].startswith("restart needed")]
    assert line["level"] == "warning"
    assert "store.hard_limit" in line["keys"]
    assert "store.min_free" not in line["keys"]
    await reloaded(broker, store={"min_free": 0})


@pytest.mark.req("503-5.4-c", component="broker")
async def test_a_new_restriction_is_pushed_to_the_home_directory(broker: BrokerNetwork) -> None:
    broker.configure(restriction={"components": ["E1", "E2"], "message_types": ["BP*"]})

    def published() -> Any:
        return broker.directory.others["B1"].restriction

    await eventually(lambda: published() and published().components == {"E1", "E2"}, 60)
    assert published().message_types == ("BP*",)
    # The copy of the broker itself comes back from the directory, and is what it goes by.
    await broker.synchronised()
    (passed, stopped) = await broker.send(
        "E1", "E2", message(message_type="BP1"), message(message_type="A01")
    )
    assert passed.taken
    assert stopped.condition == "amqp:not-allowed"
    assert len(await broker.receive("E2", 1)) == 1
    broker.configure(restriction={})
    await eventually(lambda: not published().components, 60)


async def test_sigterm_ends_in_order(tmp_path: Path) -> None:
    async with broker_network(tmp_path) as broker:
        connection = await broker.connect("E1")
        producer = await connection.attach_producer("E2")
        sent = [producer.send(message(body=b"%d" % at)) for at in range(300)]
        await sent[0]
        stopping = asyncio.create_task(broker.stop())
        outcomes = await asyncio.gather(*sent)
        assert await stopping == 0
        condition, _ = await connection.lost
        assert condition == "amqp:connection:forced"
        await broker.start()
        taken = sum(outcome.taken for outcome in outcomes)
        assert taken
        # Exactly what was accepted is there; the rest was given back.
        assert await broker.depth("E2") == taken


async def test_a_broker_that_is_not_registered_does_not_start(tmp_path: Path) -> None:
    broker = BrokerNetwork(tmp_path, FakeDirectory())
    with pytest.raises(AssertionError):
        await broker.start()
    assert broker.process is not None
    assert broker.process.returncode == 1
    assert "gridpost broker register" in str(broker.lines)
