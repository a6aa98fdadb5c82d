"""The bench of the seal measures what it says; how fast this machine is, is not asserted."""

from __future__ import annotations

from gridpost.bench.seal import run


def test_the_bench_reports_the_ratios_of_its_contract() -> None:
    result = run(seconds=0.2)
    assert set(result) == {"figures", "ratios"}
    assert {"sign_of_raw_rsa", "verify_of_raw_rsa"} <= set(result["ratios"])
    assert all(value > 0 for part in result.values() for value in part.values())
    # More than the raw operation is done, so none of these can be faster.
    assert result["ratios"]["sign_of_raw_rsa"] < 1.2
    assert result["ratios"]["verify_of_raw_rsa"] < 1.0
    figures = result["figures"]
    parts = figures["aes_1m_us"] + figures["sha512_1m_us"] + figures["rsa_1m_us"]
    assert figures["crypto_1m_us"] == parts
