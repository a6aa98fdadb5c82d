"""The message search of the console goes on where a page of a full box has stopped."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from gridpost.console.endpoint import PLACES, EndpointConsole
from gridpost.console.frame import Frame
from gridpost.console.roles import Person, Role
from gridpost.console.settings import ConsoleSettings, Whose
from gridpost.services.operations.passwords import hash_password
from support.post import World

URL = "https://console.example"


async def test_a_search_that_found_nothing_so_far_is_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gridpost.stores.memory.box.LOOKED_AT", 50)
    monkeypatch.setattr("gridpost.services.endpoint.enquiry._PAGES", 1)
    world = World()
    one = world["E1"]
    wanted = await one.send("E2", message_type="A02")
    for _ in range(120):
        await one.send("E2", message_type="A01")
    settings = ConsoleSettings({"ada": Person(Role.VIEWER, hash_password("right"))})
    frame = Frame(Whose("E1", "endpoint", "1"), settings, world.clock, one.store, PLACES)
    unused: Any = None
    console = EndpointConsole(frame, one.context, one.submission, one.enquiry, *(unused,) * 6)
    transport = httpx.ASGITransport(console.app(), client=("192.0.2.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
        data = {"name": "ada", "password": "right"}
        assert (await client.post("/login", data=data, headers={"origin": URL})).is_redirect
        where, steps = "/messages?message_type=A02", 0
        while True:
            page = (await client.get(where)).text
            further = re.search(r'href="([^"]+)">Look further back', page)
            if further is None:
                break
            assert "Nothing so far" in page
            where, steps = further[1].replace("&amp;", "&"), steps + 1
        assert wanted in page
        assert steps == 2
        none = (await client.get("/messages?message_type=A09&before=3")).text
        assert "No message fits" in none
