"""Signing in, sessions, lock-out and the audit log of a console, with a clock that tests move."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import httpx
from starlette.requests import Request
from starlette.responses import Response

from console.conftest import a_lake
from gridpost.console.frame import Frame, Visitor
from gridpost.console.roles import Person, Role
from gridpost.console.settings import ConsoleSettings, Place, Whose
from gridpost.core.journal import AdministrationRow, RefusalRow
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.operations.passwords import hash_password
from gridpost.stores.memory import MemoryStore
from support.post import TestClock

URL = "https://console.example"
HASH, OTHER = hash_password("right"), hash_password("new one")
SETTINGS = ConsoleSettings(
    {"ada": Person(Role.ADMINISTRATOR, HASH), "vera": Person(Role.VIEWER, HASH)}, attempts=3
)


class World:
    def __init__(self, settings: ConsoleSettings = SETTINGS) -> None:
        self.clock = TestClock()
        self.store = MemoryStore("E1")
        self.frame = Frame(
            Whose("E1", "endpoint", "1"), settings, self.clock, self.store, [Place("/", "A", "x")]
        )
        self.app = self.frame.app(
            [
                self.frame.route("/", self.page),
                self.frame.route("/act", self.act, Role.OPERATOR, "POST"),
                self.frame.route("/bug", self.bug),
                self.frame.route("/refusal", self.refusal),
            ]
        )

    async def page(self, request: Request, visitor: Visitor) -> Response:
        return self.frame.render(
            request, "settings.html", groups=[], values={}, mark="", problem=""
        )

    async def act(self, request: Request, visitor: Visitor) -> Response:
        return self.frame.back(visitor, "/", "It is done.")

    async def bug(self, request: Request, visitor: Visitor) -> Response:
        raise ZeroDivisionError("a secret of the program")

    async def refusal(self, request: Request, visitor: Visitor) -> Response:
        raise Refusal(Rule.INCONSISTENT_CONFIGURATION, "the disk is full", "make room")

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(self.app, client=("192.0.2.1", 1)), base_url=URL
        )

    async def sign_in(
        self, client: httpx.AsyncClient, name: str = "ada", password: str = "right"
    ) -> httpx.Response:
        data = {"name": name, "password": password}
        return await client.post("/login", data=data, headers={"origin": URL})

    async def actions(self) -> list[tuple[str, str]]:
        rows = await self.store.read(lambda w: w.journal.latest(AdministrationRow.KIND, 100))
        return [(r.row.actor, r.row.action) for r in rows if isinstance(r.row, AdministrationRow)]

    async def refusals(self) -> list[RefusalRow]:
        rows = await self.store.read(lambda w: w.journal.latest(RefusalRow.KIND, 100))
        return [r.row for r in rows if isinstance(r.row, RefusalRow)]

    def people(self, people: Mapping[str, Person]) -> None:
        self.frame.reconfigure(replace(SETTINGS, people=people))


async def test_after_too_many_wrong_guesses_even_the_right_password_is_refused_for_a_while() -> (
    None
):
    world = World()
    async with world.client() as client:
        for _ in range(3):
            assert (await world.sign_in(client, password="wrong")).status_code == 403
        locked = await world.sign_in(client)
        assert locked.status_code == 403
        assert "Too many wrong attempts" in locked.text
        assert ("ada (console)", "console locked") in await world.actions()
        # Others are not locked out with her.
        assert (await world.sign_in(client, "vera")).status_code == 303
        world.clock.advance(timedelta(minutes=14))
        assert (await world.sign_in(client)).status_code == 403
        world.clock.advance(timedelta(minutes=2))
        assert (await world.sign_in(client)).status_code == 303


async def test_a_right_password_begins_the_count_anew() -> None:
    world = World()
    async with world.client() as client:
        for _ in range(4):
            for _ in range(2):
                await world.sign_in(client, password="wrong")
            assert (await world.sign_in(client)).status_code == 303


async def test_an_address_that_tries_many_names_is_locked_as_well() -> None:
    world = World()
    async with world.client() as client:
        for number in range(30):
            await world.sign_in(client, f"guess{number}", "wrong")
        assert (await world.sign_in(client)).status_code == 403
    refused = await world.refusals()
    assert all(row.security for row in refused)
    assert "192.0.2.1" in refused[-1].details


async def test_an_unknown_name_and_a_wrong_password_are_answered_alike() -> None:
    world = World()
    async with world.client() as client:
        wrong = await world.sign_in(client, password="wrong")
        unknown = await world.sign_in(client, "nobody", "wrong")
    assert wrong.text.replace("ada", "nobody") == unknown.text


async def test_a_session_ends_after_silence_and_a_page_that_polls_is_silence() -> None:
    world = World()
    async with world.client() as client:
        await world.sign_in(client)
        for _ in range(3):
            world.clock.advance(timedelta(minutes=20))
            assert (await client.get("/")).status_code == 200
        for _ in range(5):
            world.clock.advance(timedelta(minutes=7))
            polled = await client.get("/?live=1", headers={"hx-request": "true"})
        assert polled.status_code == 401
        assert (await client.get("/")).status_code == 303


async def test_a_session_ends_after_its_longest_time_whatever_happens() -> None:
    world = World()
    async with world.client() as client:
        await world.sign_in(client)
        for _ in range(36):
            world.clock.advance(timedelta(minutes=20))
            assert (await client.get("/")).status_code == 200
        world.clock.advance(timedelta(minutes=20))
        assert (await client.get("/")).status_code == 303


async def test_a_removed_person_a_new_password_and_a_new_role_count_at_once() -> None:
    world = World()
    async with world.client() as client:
        await world.sign_in(client)
        world.people({"ada": Person(Role.VIEWER, HASH)})
        page = await client.get("/")
        token = re.search(r'name="csrf" value="([^"]+)"', page.text)
        assert token is not None
        headers = {"origin": URL, "x-csrf-token": token[1]}
        assert (await client.post("/act", headers=headers)).status_code == 403
        world.people({"ada": Person(Role.OPERATOR, HASH)})
        assert (await client.post("/act", headers=headers)).status_code == 303
        world.people({"ada": Person(Role.OPERATOR, OTHER)})
        assert (await client.get("/")).status_code == 303
        await world.sign_in(client, password="new one")
        assert (await client.get("/")).status_code == 200
        world.people({})
        assert (await client.get("/")).status_code == 303


async def test_signing_out_ends_the_session_for_whoever_kept_the_cookie() -> None:
    world = World()
    async with world.client() as client:
        await world.sign_in(client)
        kept = dict(client.cookies)
        page = (await client.get("/")).text
        token = re.search(r'name="csrf" value="([^"]+)"', page)
        assert token is not None
        await client.post("/logout", data={"csrf": token[1]}, headers={"origin": URL})
    async with world.client() as thief:
        thief.cookies.update(kept)
        assert (await thief.get("/")).status_code == 303
    assert [action for _, action in await world.actions()] == ["signed out", "signed in"]


async def test_a_notice_is_told_once() -> None:
    world = World()
    async with world.client() as client:
        await world.sign_in(client)
        token = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/")).text)
        assert token is not None
        await client.post("/act", data={"csrf": token[1]}, headers={"origin": URL})
        assert "It is done." in (await client.get("/")).text
        assert "It is done." not in (await client.get("/")).text


async def test_a_mistake_of_ours_is_told_without_its_inside() -> None:
    world = World()
    async with world.client() as client:
        await world.sign_in(client)
        page = await client.get("/bug")
        assert page.status_code == 500
        assert "secret of the program" not in page.text
        (row,) = await world.refusals()
        assert row.refusal_id in page.text
        refused = await client.get("/refusal")
        assert refused.status_code == 422
        assert "The disk is full" in refused.text
        part = await client.get("/refusal", headers={"hx-request": "true"})
        assert "<html" not in part.text


async def test_the_log_is_turned_over_page_by_page() -> None:
    world = World()
    for number in range(120):
        await world.frame.audit.wrote("ada (console)", f"action {number:03}")
    async with world.client() as client:
        await world.sign_in(client)
        seen: list[str] = []
        where: str | None = "/audit"
        while where is not None:
            page = (await client.get(where)).text
            seen += re.findall(r"action \d\d\d", page)
            older = re.search(r'href="([^"]+)">Older', page)
            where = older[1].replace("&amp;", "&") if older else None
    assert seen == [f"action {number:03}" for number in reversed(range(120))]


async def test_assets_may_be_kept_for_ever_because_their_address_changes_with_them() -> None:
    world = World()
    async with world.client() as client:
        page = (await client.get("/login")).text
        addresses = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
        assert len(addresses) >= 3
        for address in addresses:
            answer = await client.get(address)
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
        assert (await client.get("/static/../frame.py")).status_code in (303, 404)
        for licence in ("htmx.LICENSE.txt", "uPlot.LICENSE.txt"):
            assert (await client.get(f"/static/{licence}")).status_code == 200


async def test_key_figures_of_a_lake_are_a_page_for_everybody_who_is_signed_in(tmp_path):
    world = World()
    async with world.client() as client:
        await world.sign_in(client, "vera")
        assert (await client.get("/figures")).status_code == 404
        assert "/figures" not in (await client.get("/")).text
        world.frame.reconfigure(replace(SETTINGS, lake=tmp_path / "nothing"))
        assert "is not a lake" in (await client.get("/figures")).text
        world.frame.reconfigure(replace(SETTINGS, lake=a_lake(tmp_path)))
        assert 'href="/figures"' in (await client.get("/")).text
        page = await client.get("/figures")
    assert page.status_code == 200
    assert "Journals in the lake" in page.text
    assert '<span class="tile-value">7</span><span class="tile-label">received</span>' in page.text
    assert "&lt;b&gt;" in page.text
    # Every figure says up to when it is complete: the head, counts and lines.
    now = TestClock().now().isoformat(" ")[:19]
    assert page.text.count(now) >= 4
    assert "<dt>complete up to</dt>" in page.text
    assert '<th scope="col">complete up to</th>' in page.text


async def test_the_overview_begins_with_what_is_wrong() -> None:
    world = World()
    alert = {"kind": "disk_space", "severity": "critical", "text": "12 MiB are free for <E1>"}
    world.frame.alerts = lambda: [alert] + [{**alert, "severity": "warning"}] * 6
    async with world.client() as client:
        assert "disk" not in (await client.get("/login")).text.lower()
        await world.sign_in(client, "vera")
        page = (await client.get("/")).text
        assert "<strong>Disk space:</strong> 12 MiB are free for &lt;E1&gt;." in page
        assert page.count('<div class="problem">') == 1
        assert page.count('<div class="warning">') == 4
        assert "And 2 more alerts" in page
    async with world.client() as client:
        await world.sign_in(client)
        assert "Disk space" not in (await client.get("/audit")).text
