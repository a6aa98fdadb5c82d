"""The bench of the seal measures what it says; how fast this machine is, is not asserted."""

from __future__ import annotations

import pytest

from gridpost.bench.seal import measure


def test_the_bench_reports_the_ratios_of_its_contract() -> None:
    measured = measure(seconds=0.2)
    figures, ratios = measured.figures, measured.ratios
    assert {"sign_of_raw_rsa", "verify_of_raw_rsa"} <= set(ratios)
    assert all(value > 0 for value in (*figures.values(), *ratios.values()))
    parts = figures["aes_1m_us"] + figures["sha512_1m_us"] + figures["rsa_1m_us"]
    assert figures["crypto_1m_us"] == pytest.approx(parts)
