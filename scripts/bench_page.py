"""Writes docs/bench.md: of each bench the last result beside what is wanted of it.

    python scripts/bench_page.py RESULT PAGE     RESULT: what `gridpost bench NAME --json` has printed

Other benches keep the section that they had. Nothing fails here: a figure that misses its goal says so on
the page.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HEAD = """# Last measured speed

`make bench` measures and writes this page; `make bench BENCHES="seal box"` renews a part of it. Ratios are
taken in one run against a peer or a physical limit on the same machine, so that they can be compared;
figures depend on the machine. [gridpost bench](commands/bench.md) says what each bench does.
"""


@dataclass(frozen=True, slots=True)
class Goal:
    bench: str
    key: str
    at_least: float | None = None
    at_most: float | None = None

    def met(self, value: float) -> bool:
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        if self.at_least is not None:
            return f"at least {self.at_least:,.6g}"
        return f"at most {self.at_most:,.6g}"


GOALS = (
    Goal("seal", "sign_of_raw_rsa", at_least=0.9),
    Goal("seal", "verify_of_raw_rsa", at_least=0.4),
    Goal("box", "batched_puts_per_s", at_least=10_000),
    Goal("directory", "full_sync_s", at_most=2),
    Goal("directory", "full_sync_client_mb", at_most=200),
    Goal("directory", "full_sync_server_mb", at_most=200),
    Goal("directory", "unchanged_sync_server_cpu_ms", at_most=20),
    Goal("broker", "msgs_1k_vs_rabbitmq", at_least=1),
    Goal("broker", "msgs_10k_vs_rabbitmq", at_least=1),
    Goal("broker", "msgs_1m_vs_rabbitmq", at_least=1.5),
    Goal("broker", "cpu_1k_vs_rabbitmq", at_most=1),
    Goal("broker", "deep_vs_shallow", at_least=0.8),
    Goal("broker", "deep_resident_mb", at_most=300),
    Goal("delivery", "of_crypto_limit", at_least=0.4),
    Goal("delivery", "p50_ms", at_most=250),
    Goal("delivery", "lost", at_most=0),
    Goal("delivery", "duplicated", at_most=0),
    Goal("pipeline", "ingest_rows_per_s", at_least=500_000),
    Goal("pipeline", "kpi_vs_duckdb", at_most=5),
    Goal("pipeline", "verify_vs_process_pool", at_least=0.7),
    Goal("pipeline", "market_docs_per_s", at_least=3_000),
    Goal("capacity", "requests_vs_echo", at_least=0.5),
    Goal("capacity", "p99_vs_echo", at_most=5),
    Goal("capacity", "service_time_with_200_subscribers", at_most=1.1),
    Goal("envelope", "parse_validate_of_lxml", at_least=0.6),
    Goal("envelope", "parse_validate_per_s", at_least=5_000),
    Goal("bus", "requests_vs_echo", at_least=0.5),
    Goal("node", "bulk_vs_single", at_least=3),
    Goal("node", "mtom_vs_base64", at_least=4),
)


def section(result: Mapping[str, Any], *, date: str, commit: str) -> str:
    goals = {goal.key: goal for goal in GOALS if goal.bench == result["name"]}
    machine = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    lines = [
        f"\n## {result['name']}\n",
        f"{date}, `{commit}`, {machine}\n",
        "| | measured | wanted | |",
        "|---|---:|---:|---|",
    ]
    for values in (result["ratios"], result["figures"]):
        for key, value in values.items():
            goal = goals.get(key)
            verdict = "" if goal is None else "met" if goal.met(value) else "**missed**"
            lines.append(f"| `{key}` | {value:,.6g} | {goal or ''} | {verdict} |")
    return "\n".join(lines) + "\n"


def render(before: str, sections: Mapping[str, str]) -> str:
    """The page with these sections renewed, all in the order of their names."""
    kept = {
        found.group(1): found.group(0)
        for found in re.finditer(r"\n## (\w+)\n.*?(?=\n## |\Z)", before, re.DOTALL)
    }
    return HEAD + "".join(text for _, text in sorted({**kept, **sections}.items()))


def main(result_file: str, page: str) -> None:
    git = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    result = json.loads(Path(result_file).read_text(encoding="utf-8"))
    target = Path(page)
    before = target.read_text(encoding="utf-8") if target.exists() else ""
    renewed = {result["name"]: section(result, date=date, commit=commit)}
    target.write_text(render(before, renewed), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
