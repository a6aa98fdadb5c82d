"""Operators of capacity: their JSON API, what the journal says of them, alerts, export, backup, restore."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pyarrow.parquet
import pytest
import pytest_asyncio

from gridpost.assembly.backup import back_up, restore
from gridpost.assembly.capacity import running_capacity
from gridpost.assembly.check import check
from gridpost.assembly.journal_export import export_job
from gridpost.core.capacity import Status
from gridpost.core.refusal import Refusal
from gridpost.services.capacity import watching
from gridpost.services.operations import observers
from gridpost.services.operations.administrators import hash_token
from gridpost.transports.free_port import free_port
from support.capacity_market import DK1, EON, GROUP
from support.capacity_site import (
    BETA,
    DE_DK_1000,
    capacity_csv,
    capacity_service,
    periods,
    wanted,
)  # fmt: skip

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "a token of the test"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbit, tmp_path_factory):
    administration = {"port": 0, "tokens": {"ada": hash_token(TOKEN)}}
    async with capacity_service(
        rabbit, tmp_path_factory.mktemp("administration"), administration=administration
    ) as running:
        yield running


@asynccontextmanager
async def api(site, token=TOKEN):
    async with httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{site.running.api_port}/admin/v1",
        headers={"authorization": f"Bearer {token}"} if token else {},
        trust_env=False,
        timeout=60,
    ) as client:
        yield client


def item(quantity, number=12, areas=(EON, DK1)):
    period = periods()[number]
    return {
        "out_area": areas[0],
        "in_area": areas[1],
        "period_start": period.start.isoformat(),
        "period_end": period.end.isoformat(),
        "quantity": quantity,
    }


async def journalled(site, kind):
    rows = await site.running.ledger.run(lambda unit: unit.journal.read(0, 100_000))
    return [recorded.row for recorded in rows if kind == recorded.row.KIND]


async def test_nobody_does_anything_without_a_token_of_his_own(site):
    for token in ("", "wrong"):
        async with api(site, token) as client:
            for method, path in (("GET", "users"), ("POST", "halt"), ("GET", "events")):
                answer = await client.request(method, f"/{path}", json={"border": "DE-DK"})
                assert answer.status_code == 401
                assert answer.json()["refused"]["rule"] == "ACCESS_DENIED"
    assert all(row["status"] == "ALLOCATION" for row in site.running.administration.borders())
    assert [row.security for row in await journalled(site, "refusal")] == [True] * 6


async def test_a_standby_tells_that_it_stands_by_until_it_has_the_turn(rabbit, tmp_path):
    host, port = rabbit.virtual_host(), free_port()
    turn = asyncio.Event()

    async def stand_by(configuration):
        async with running_capacity(configuration) as running:
            turn.set()
            return (await running.service.health())["active"]

    async with (
        capacity_service(rabbit, tmp_path, host) as site,
        httpx.AsyncClient(
            trust_env=False, timeout=60, base_url=f"http://127.0.0.1:{port}"
        ) as client,
    ):

        async def told(path):
            try:
                return await client.get(path)
            except httpx.TransportError:
                return None

        own = site.configuration.operations.model_copy(update={"port": port})
        second = site.configuration.model_copy(update={"operations": own, "administration": None})
        standby = asyncio.create_task(stand_by(second))
        async with asyncio.timeout(60):
            while (answer := await told("/health")) is None:
                await asyncio.sleep(0.05)
        assert answer.json() == {"ok": True, "active": False, "state": "standing by"}
        assert answer.status_code == (await told("/health/live")).status_code == 200
        assert (await told("/health/ready")).status_code == 503
        assert not turn.is_set()
    assert await asyncio.wait_for(standby, 60)


async def test_an_operator_publishes_adjusts_halts_and_allocates_by_the_api(site):
    async with api(site) as client, site.client("r1") as reporter:
        text = capacity_csv(*DE_DK_1000)
        published = await client.post("/publish", json={"file": text})
        assert published.json() == {"offers": 48, "broadcasts": 2}
        lowered = capacity_csv((EON, DK1, 700), only=slice(12, 13))
        assert (await client.post("/adjust", json={"file": lowered})).json()["broadcasts"] == 1
        rows = (await client.get("/atc")).json()
        free = {
            (row["out_area"], row["period_start"]): row["available"]
            for row in rows
            if row["border"] == "DE-DK"
        }
        noon = periods()[12].start.isoformat()
        assert (free[EON, noon], free[DK1, noon]) == (700, 1000)
        halted = await client.post("/halt", json={"border": "DE-DK", "reason": "works"})
        assert halted.json()["status"] == "HALT"
        refused = await client.post(
            "/allocate", json={"balancing_group": GROUP, "items": [item(100)]}
        )
        assert [i["success"] for i in refused.json()["items"]] == [False]
        await client.post("/resume", json={"border": "DE-DK"})
        done = await client.post("/allocate", json={"balancing_group": GROUP, "items": [item(100)]})
        [made] = done.json()["items"]
        assert (made["success"], made["confirmed"]) == (True, 100)
        found = await client.get(
            "/allocations",
            params={
                "balancing_group": GROUP, "area1": EON, "area2": DK1,
                "from": periods()[0].start.isoformat(), "to": periods()[-1].end.isoformat(),
            },
        )  # fmt: skip
        assert [(row["allocation_id"], row["quantity"], row["event"]) for row in found.json()] == [
            (made["allocation_id"], 100, "ON_BEHALF")
        ]
        users = {row["user"]: row for row in (await client.get("/users")).json()}
        assert users["r1"]["logged_in"]
        assert not users["u10"]["logged_in"]
        assert users["u.1"]["balancing_groups"] == [GROUP, BETA]
        assert reporter.connected
        newest, *older = (await client.get("/events", params={"limit": 5})).json()
        assert (newest["kind"], newest["quantity"], newest["actor"]) == (
            "allocation", 100, "operator:ada",
        )  # fmt: skip
        page = await client.get("/events", params={"limit": 2, "before": older[0]["sequence"]})
        assert [row["sequence"] for row in page.json()] == [row["sequence"] for row in older[1:3]]
    told = [(row.actor, row.action) for row in await journalled(site, "administration")]
    assert told == [
        ("operator:ada", action)
        for action in ("PUBLISH", "ADJUST_CAPACITY", "HALT", "ON_BEHALF", "ALLOCATION", "ON_BEHALF")
    ]
    reasons = [row.reason for row in await journalled(site, "administration")]
    assert reasons[2] == "works"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("publish", {"file": "nothing"}),
        ("publish", {}),
        ("halt", {"border": "XX-YY"}),
        ("allocate", {"balancing_group": "11XNOBODY------0", "items": [item(1)]}),
        ("allocate", {"balancing_group": GROUP, "items": []}),
        ("allocate", {"balancing_group": GROUP, "items": [{}]}),
        ("allocate", {"balancing_group": GROUP, "items": [item(1)], "event": "PUBLISH"}),
        ("halt", ["DE-DK"]),
    ],
)
async def test_what_cannot_be_done_is_refused_with_a_reason(site, path, body):
    async with api(site) as client:
        answer = await client.post(f"/{path}", json=body)
        assert answer.status_code == 422
        assert answer.json()["refused"]["message"]
        assert (await client.get("/nothing")).status_code == 404
        assert (await client.get("/events", params={"limit": "x"})).status_code == 422
        assert (await client.get("/allocations")).status_code == 422


async def test_alerts_tell_of_a_lost_broker_of_sold_too_much_and_of_an_old_certificate(site):
    service = site.running.service
    await site.publish((EON, DK1, 500), only=slice(3, 4))
    async with site.client() as client:
        assert (await client.allocate([wanted(400, 3)])).confirmed == 400
    assert await watching.shortfall(service)() == []
    await site.act("adjust", file=capacity_csv((EON, DK1, 100), only=slice(3, 4)))
    [condition] = await watching.shortfall(service)()
    assert "300 kW" in condition.text
    assert await watching.broker(service)() == []
    requests, service._requests = service._requests, None
    try:
        [condition] = await watching.broker(service)()
        assert condition.severity == "critical"
    finally:
        service._requests = requests
    from gridpost.assembly.capacity_operating import _package_end

    def ends():
        return _package_end(site.configuration.rabbitmq)

    [(place, end)] = ends()
    assert place == "rabbitmq"
    observe = observers.ending(service.clock, ends, end - datetime.now(UTC) + timedelta(days=1))
    assert [c.subject for c in await observe()] == [place]
    assert await observers.ending(service.clock, ends, timedelta(days=1))() == []
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        port = site.running.operations_port
        health = (await client.get(f"http://127.0.0.1:{port}/health")).json()
        assert health["ok"]
        assert "alerts" in health


def written(site, folder):
    """The configuration file of a site, as an operator has it."""
    values = site.configuration
    rabbit = values.rabbitmq
    file = folder / "capacity.toml"
    lines = [
        'component = "capacity"', f'code = "{values.code}"', f'home = "{values.home}"',
        f'zone = "{values.zone}"', "[rabbitmq]", f"urls = {json.dumps(list(rabbit.urls))}",
        f'virtual_host = "{rabbit.virtual_host}"', f'roots = "{rabbit.roots}"',
        f'package = "{rabbit.package}"',
        f'passphrase = "{rabbit.passphrase.get_secret_value()}"',
        "[[borders]]", 'name = "DE-DK"', f'interconnectors = [["{EON}", "{DK1}"]]',
        "opening_days = 30", "[operations]", "port = 0",
    ]  # fmt: skip
    file.write_text("\n".join(lines) + "\n")
    return file


async def test_export_backup_and_restore_know_the_ledger(rabbit, tmp_path):
    host = rabbit.virtual_host()
    async with capacity_service(rabbit, tmp_path / "home", host) as site:
        await site.publish()
        async with site.client() as client:
            assert (await client.allocate([wanted(100)])).confirmed == 100
        file = written(site, tmp_path)
        assert check(file).component == "capacity"
        archive = tmp_path / "backup.tar"
        await asyncio.to_thread(back_up, file, archive, datetime.now(UTC), lambda *_: None)
        async with site.client() as client:
            assert (await client.allocate([wanted(200)])).confirmed == 200
        # The journal, while the service runs.
        job = await asyncio.to_thread(export_job, file, tmp_path / "landing", 1000)
        await asyncio.to_thread(job.once)
        segments = list((tmp_path / "landing").rglob("*.parquet"))
        rows = [
            row for segment in segments for row in pyarrow.parquet.read_table(segment).to_pylist()
        ]
        kinds = [row["kind"] for row in rows]
        assert kinds.count("capacity-allocation") == 2
        assert {"capacity-atc", "capacity-broadcast", "administration"} <= set(kinds)
        # What was exported goes after a while; what was not stays.
        ledger, service = site.running.ledger, site.running.service
        await site.act("halt", border="DE-DK")
        later = datetime.now(UTC) + timedelta(days=31)
        gone = await ledger.run(lambda unit: service._prune(unit, later))
        assert gone == len(rows)
        left = await ledger.run(lambda unit: unit.journal.read(0, 10))
        assert [recorded.row.action for recorded in left] == ["HALT"]
        await site.act("resume", border="DE-DK")
    other = tmp_path / "other.toml"
    other.write_text(file.read_text().replace(str(tmp_path / "home"), str(tmp_path / "restored")))
    await asyncio.to_thread(restore, archive, other, datetime.now(UTC), lambda *_: None)
    async with capacity_service(rabbit, tmp_path / "restored", host) as site:
        # The second allocation is not in the backup: nothing is sold before somebody has looked.
        pools = site.running.ledger.look(lambda book: list(book.pools.values()))
        assert all(pool.status is Status.HALT for pool in pools)
        async with site.client() as client:
            result = await client.allocate([wanted(900)])
            assert result.items[0].message == "The service is in HALT."
        await site.act("resume", border="DE-DK")
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            port = site.running.operations_port
            health = (await client.get(f"http://127.0.0.1:{port}/health")).json()
            assert "reconcile" in health["restored"]["missing"]
    async with (
        capacity_service(rabbit, tmp_path / "restored", host) as site,
        site.client() as client,
    ):
        assert (await client.allocate([wanted(900)])).confirmed == 900


async def test_a_backup_of_a_database_is_the_business_of_the_database(site, tmp_path):
    file = written(site, tmp_path)
    text = file.read_text().replace("[rabbitmq]", 'store = "postgres"\n[rabbitmq]')
    file.write_text(f'{text}[postgres]\ndsn = "postgresql://localhost/x"\n')
    with pytest.raises(Refusal, match="PostgreSQL"):
        back_up(file, tmp_path / "backup", datetime.now(UTC), lambda *_: None)
    assert check(file).warnings == ["there are no users: nobody can ask for capacity"]
    taken = site.running.operations_port
    file.write_text(file.read_text().replace("port = 0", f"port = {taken}"))
    assert f"operations.port {taken} on 127.0.0.1" in check(file).warnings[1]


async def test_the_operations_listener_acts_for_those_who_can_read_the_home_or_have_a_token(site):
    url = f"http://127.0.0.1:{site.running.operations_port}"
    form = {"border": "DE-DK", "by": "somebody"}
    file = site.configuration.home / "operations.token"
    assert file.stat().st_mode & 0o077 == 0
    own = {"authorization": f"Bearer {file.read_text().strip()}"}
    async with httpx.AsyncClient(trust_env=False, timeout=60, base_url=url) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic eDp5"}):
            for action in ("halt", "events"):
                answer = await client.post(f"/{action}", json=form, headers=headers)
                assert answer.status_code == 401
                assert answer.json()["refused"]["rule"] == "ACCESS_DENIED"
        assert (await client.get("/health")).json()["active"]
        assert all(row["status"] == "ALLOCATION" for row in site.running.administration.borders())
        assert (await client.post("/halt", json=form, headers=own)).json()["status"] == "HALT"
        named = {"authorization": f"Bearer {TOKEN}"}
        assert (await client.post("/resume", json=form, headers=named)).is_success
    rows = await journalled(site, "administration")
    assert [row.actor for row in rows[-2:]] == ["operator:somebody", "operator:ada"]
    assert [row.security for row in (await journalled(site, "refusal"))[-6:]] == [True] * 6
