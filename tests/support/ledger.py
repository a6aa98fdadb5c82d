"""The conformance ledger: which pairs of requirement and component a real test run has proven.

A pair is proven when a test that claims it passed and none that claims it failed. Skipped tests
and expected failures prove nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from support.register import LEVELS, Pair, Registers

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(slots=True)
class Ledger:
    registers: Registers
    # Keyed by test case: one case of a parametrised test may be skipped while others run.
    claims: dict[str, set[Pair]] = field(default_factory=dict)
    outcomes: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def claim(self, test: str, pairs: set[Pair]) -> None:
        self.claims[test] = pairs

    def record(self, test: str, outcome: str) -> None:
        self.outcomes[test].add(outcome)

    def proofs(self) -> dict[Pair, list[str]]:
        """The proven pairs and the test functions that prove them."""
        passing: dict[Pair, set[str]] = defaultdict(set)
        failing: set[Pair] = set()
        for test, pairs in self.claims.items():
            outcomes = self.outcomes.get(test, set())
            if FAILED in outcomes:
                failing |= pairs
            elif PASSED in outcomes:
                for pair in pairs:
                    passing[pair].add(_function_of(test))
        return {pair: sorted(tests) for pair, tests in passing.items() if pair not in failing}

    def counts(self) -> Iterator[tuple[str, str, int, int, int]]:
        """(document, level, proven, excepted, total), in the order of the registers."""
        proofs = self.proofs()
        for document in self.registers.documents:
            for level in LEVELS:
                pairs = [pair for _, pair in self.registers.pairs(document, level)]
                if pairs:
                    yield (
                        document,
                        level,
                        sum(pair in proofs for pair in pairs),
                        sum(pair in self.registers.exceptions for pair in pairs),
                        len(pairs),
                    )

    def table(self) -> list[str]:
        """The summary as it is printed at the end of a run."""
        rows = [("document", "level", "proven", "excepted", "total")]
        rows += [(d, level, str(p), str(e), str(t)) for d, level, p, e, t in self.counts()]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        return [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]

    def markdown(self) -> str:
        """docs/conformance.md: the same run gives the same text."""
        lines = [
            "# Conformance",
            "",
            "What the documents demand and which of it a test run has proven. `make conformance`",
            "writes this page from the outcome of the tests; the requirements themselves stand in",
            "`conformance/*.csv`. A row that names several components counts once for each. Skipped",
            "tests prove nothing, and a failing test takes back what others prove.",
            "",
            "| document | level | proven | excepted | total |",
            "|---|---|---:|---:|---:|",
        ]
        lines += [
            f"| {document} | {level} | {proven} | {excepted} | {total} |"
            for document, level, proven, excepted, total in self.counts()
        ]
        proofs = self.proofs()
        for document in self.registers.documents:
            lines += [
                "",
                f"## {document}",
                "",
                "| requirement | component | level | proven by |",
                "|---|---|---|---|",
            ]
            for row, pair in self.registers.pairs(document):
                if pair in proofs:
                    proof = "<br>".join(f"`{test}`" for test in proofs[pair])
                elif pair in self.registers.exceptions:
                    proof = f"not implemented: {self.registers.exceptions[pair]}"
                else:
                    proof = ""
                lines.append(f"| {row.id} | {pair.component} | {row.level} | {proof} |")
        if self.registers.elsewhere:
            lines += [
                "",
                "## Proven without a running broker",
                "",
                "Every other row of a broker is shown by a test that talks AMQP with one that runs.",
                "",
                "| requirement | component | why |",
                "|---|---|---|",
            ]
            lines += [
                f"| {pair.row} | {pair.component} | {reason} |"
                for pair, reason in self.registers.elsewhere.items()
            ]
        return "\n".join(lines) + "\n"


def _function_of(test: str) -> str:
    """The test without its parameters: the ledger names functions, not cases."""
    return test.partition("[")[0]
