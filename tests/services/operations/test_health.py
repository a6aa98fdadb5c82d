"""Three questions to a component: does it live, is it ready, does its work get done."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from prometheus_client import CollectorRegistry

from gridpost.core.refusal import Refusal, Rule
from gridpost.services.operations.app import operations_app


def client(health, **more) -> httpx.AsyncClient:
    app = operations_app(health, CollectorRegistry(), lambda: None, {}, **more)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://health")


async def broken() -> dict[str, object]:
    raise Refusal(Rule.STORE_FULL, "the disk is full")


async def well() -> dict[str, object]:
    return {"ok": True}


async def test_a_component_that_cannot_work_still_lives():
    async with client(broken) as ask:
        assert (await ask.get("/health/live")).status_code == 200
        for path in ("/health", "/health/ready", "/health/deep"):
            answer = await ask.get(path)
            assert (answer.status_code, answer.json()["reason"]) == (503, "the disk is full")


async def test_deep_health_is_asked_of_whoever_can_try_the_work():
    async def deep() -> dict[str, object]:
        return {"ok": False, "probe": {"reason": "E2 has not answered"}}

    async with client(well, deep=deep) as ask:
        assert (await ask.get("/health/ready")).status_code == 200
        assert (await ask.get("/health/deep")).status_code == 503


async def test_figures_may_take_a_look_at_the_store_first():
    looked = []

    async def measure() -> None:
        await asyncio.sleep(0)
        looked.append(True)

    app = operations_app(well, CollectorRegistry(), measure, {})
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://health") as ask:
        assert (await ask.get("/metrics")).status_code == 200
    assert looked


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_nothing_can_be_written_there(path):
    async with client(well) as ask:
        assert (await ask.post(path)).status_code == 405
