"""A service beside its echo."""

from __future__ import annotations

import asyncio

import pytest

from gridpost.bench._beside_echo import BesideEcho


def _answering(seconds: float):
    async def ask() -> None:
        await asyncio.sleep(seconds)

    return [ask] * 4


async def test_both_are_paced_by_the_echos_first_rate_and_compared_by_medians():
    beside = BesideEcho(1 / 2, 0.0, 0.2)
    for _ in range(2):
        await beside.ask_echo(_answering(0.005))
        await beside.ask_service(_answering(0.02))
    figures, ratios = beside.figures(), beside.ratios()
    assert 0 < figures["paced_requests_per_s"] < figures["echo_requests_per_s"] * 2
    assert figures["requests_per_s"] < figures["echo_requests_per_s"]
    assert figures["p50_ms"] >= 20
    assert ratios["requests_vs_echo"] < 1 < ratios["p99_vs_echo"]
    assert ratios["p99_vs_echo"] == pytest.approx(figures["p99_ms"] / figures["echo_p99_ms"])
