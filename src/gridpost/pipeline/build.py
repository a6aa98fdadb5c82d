"""From bronze to silver and gold: which tables there are, and what each is made of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gridpost.pipeline import bronze
from gridpost.pipeline.alerts import STUCK_AFTER
from gridpost.pipeline.file_rows import worked
from gridpost.pipeline.gold import capacity as capacity_figures
from gridpost.pipeline.gold import delivery as figures
from gridpost.pipeline.gold import envelopes as response_figures
from gridpost.pipeline.gold.marks import write_marks
from gridpost.pipeline.gold.reconciliation import reconciliation, waiting
from gridpost.pipeline.gold.sla import Agreement, ResponseAgreement, sla
from gridpost.pipeline.incremental import (
    CONTENT,
    GOLD,
    SILVER,
    VIEWS,
    BuildResult,
    Incremental,
    digest,
)
from gridpost.pipeline.lake import OUTDATED, Lake, Part, Progress, Table, silent
from gridpost.pipeline.proofs import AUDIT, EVIDENCE, KnownCertificate, judging
from gridpost.pipeline.ranges import Mark, Range, gaps, marks
from gridpost.pipeline.silver import capacity, envelopes, facts, market_views
from gridpost.pipeline.silver.market import DEFAULT_ZONE, FORM, SPARK_PARSED, parse_documents
from gridpost.pipeline.silver.messages import messages, proofs

# Placed by the day of their message: they wait without a day until the message is known.
FOLLOWING = {
    "tracking_events": facts.tracking_events,
    "acknowledgements": facts.acknowledgements,
}
INDEPENDENT = {
    VIEWS: facts.message_views,
    "transfers": facts.transfers,
    "refusals": facts.refusals,
    "administration": facts.administration,
    "components": facts.components,
    "certificates": facts.certificates,
    "atc": capacity.atc,
    "allocations": capacity.allocations,
    "broadcasts": capacity.broadcasts,
    "sessions": capacity.sessions,
    "envelopes": envelopes.envelopes,
}
# Contents, as they were journalled: a bronze part may go only when these hold it too.
DOCUMENTS = ("documents", "envelope_documents")
AUDITED = "proof_audit"


@dataclass(frozen=True, slots=True)
class BuildSettings:
    agreements: tuple[Agreement, ...] = ()
    roots: tuple[bytes, ...] = ()
    """ROOT CAs by which the audit judges; without any nothing is proven."""
    stuck_after_seconds: int = STUCK_AFTER
    zone: str = DEFAULT_ZONE
    """Of the market: it decides which delivery day a point belongs to."""
    responses: tuple[ResponseAgreement, ...] = ()


class Builder(Incremental):
    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        settings: BuildSettings | None = None,
        progress: Progress = silent,
    ) -> None:
        super().__init__(spark, lake, progress)
        self._settings = settings or BuildSettings()

    def run(self) -> BuildResult:
        for name, transform in INDEPENDENT.items():
            self._progress(f"silver.{name}")
            self._add_facts(name, transform)
        for name, transform in FOLLOWING.items():
            self._progress(f"silver.{name}")
            self._add_following(name, transform)
        self._progress("silver.messages")
        inputs = (VIEWS, *FOLLOWING)
        self._per_day(SILVER, "messages", inputs, lambda v, t, a: messages(v, t, a))
        self._per_day(SILVER, "proofs", (VIEWS, "acknowledgements"), proofs)
        self._market()
        write_marks(self._lake, self._ranges(), self.result.build)
        self._gold()
        self._capacity()
        self._envelopes()
        self._let_go()
        return self.result

    def _let_go(self) -> None:
        """Tables that a full build found nothing for; the audit is made by `audit`."""
        for table in self._lake.tables():
            if OUTDATED in table.pointer().meta and table.name != f"{GOLD}.{AUDITED}":
                table.overwrite([])

    # ------------------------------------------------------------ silver

    def _market(self) -> None:
        """Documents that owners had journalled, parsed; they stay in the folder with its own rights."""
        self._progress("content.documents")
        self._add_facts("documents", facts.documents, CONTENT)
        if not self._lake.table(CONTENT, "documents").pointer().parts:
            return
        parse = parse_documents(self._settings.zone)

        def parsed(documents: DataFrame) -> DataFrame:
            # Several journals may hold it: the first row is where it comes from.
            order = F.struct("time", "component", "instance", "sequence")
            row = F.struct(*facts.LINEAGE, F.col("time").alias("known_at"), "content")
            once = documents.groupBy("day", "message_id").agg(F.min_by(row, order).alias("first"))
            rows = once.select("day", "message_id", "first.*")
            return self._spread(rows).mapInArrow(parse, SPARK_PARSED)

        self._progress("content.market")
        self._per_day(
            CONTENT,
            "market_parsed",
            ("documents",),
            parsed,
            also=f"{self._settings.zone}/{FORM}",
            source=CONTENT,
        )
        for name, make in (
            ("market_documents", market_views.documents),
            ("market_series", market_views.series),
            ("market_points", market_views.points),
            ("market_quarantine", market_views.quarantine),
        ):
            self._per_day(CONTENT, name, ("market_parsed",), make, source=CONTENT)

    # ------------------------------------------------------------ gold

    def _gold(self) -> None:
        known = self._mark_frame()
        marked = digest(json.dumps(asdict(m)) for m in self._known_marks().values())
        self._progress("gold.latency")
        self._per_day(GOLD, "latency_histograms", ("messages",), figures.latency_histograms)
        self._progress("gold.delivery")
        self._per_day(
            GOLD,
            "delivery",
            ("messages",),
            lambda m: figures.delivery(m, figures.latency_histograms(m)),
        )
        for name, make in (
            ("failure_reasons", figures.failure_reasons),
            ("traffic_matrix", figures.traffic_matrix),
            ("duplicates", figures.duplicates),
            ("certificate_usage", figures.certificate_usage),
        ):
            self._progress(f"gold.{name}")
            self._per_day(GOLD, name, ("messages",), make)
        self._progress("gold.reconciliation")
        self._per_day(
            GOLD,
            "reconciliation",
            ("messages",),
            lambda m: reconciliation(m, known),
            also=digest(f"{m.component}@{m.since}" for m in self._known_marks().values()),
            while_open=marked,
        )
        seconds = self._settings.stuck_after_seconds
        self._progress("gold.waiting")
        self._per_day(
            GOLD,
            "waiting",
            ("messages",),
            lambda m: waiting(m, known, seconds),
            also=str(seconds),
            while_open=marked,
        )
        if self._settings.agreements:
            self._progress("gold.sla")
            agreements = self._settings.agreements
            text = digest(json.dumps(asdict(a)) for a in agreements)

            def judged(m: DataFrame) -> DataFrame:
                found = sla(m, agreements)
                assert found is not None
                return found

            self._per_day(GOLD, "sla", ("messages",), judged, also=text)

    def _capacity(self) -> None:
        if not self._lake.table(SILVER, "broadcasts").pointer().parts:
            return
        self._progress("gold.capacity")
        made = capacity_figures
        self._per_day(GOLD, "capacity_positions", ("allocations",), made.positions)
        self._per_day(GOLD, "capacity_use", ("atc", "allocations"), made.use)
        self._whole(GOLD, "capacity_broadcast_gaps", ("broadcasts",), made.broadcast_gaps)
        self._whole(GOLD, "capacity_client_gaps", ("broadcasts", "sessions"), made.client_gaps)
        holes = sorted({gap.component for gap in gaps(self._ranges())})
        self._whole(
            GOLD,
            "capacity_reconciliation",
            ("broadcasts", "atc", "allocations"),
            lambda b, q, a: made.broadcast_reconciliation(b, q, a, holes),
            also=digest(holes),
        )

    def _envelopes(self) -> None:
        self._add_facts("envelope_documents", envelopes.documents, CONTENT)
        if not self._lake.table(SILVER, "envelopes").pointer().parts:
            return
        if self._lake.table(CONTENT, "envelope_documents").pointer().parts:
            self._payloads()
        self._progress("gold.envelopes")
        made = response_figures
        self._per_day(GOLD, "response_times", ("envelopes",), made.response_times)
        self._per_day(GOLD, "envelope_traffic", ("envelopes",), made.traffic)
        agreements = self._settings.responses
        if agreements:
            text = digest(json.dumps(asdict(a)) for a in agreements)
            self._per_day(
                GOLD,
                "response_sla",
                ("envelopes",),
                lambda e: made.conformance(e, agreements),
                also=text,
            )

    def _payloads(self) -> None:
        """What envelopes carried, where the owner of a bus has it journalled."""

        def read(documents: DataFrame) -> DataFrame:
            # The same columns as they came, and what was found in them.
            spread = self._spread(documents)
            return spread.mapInArrow(envelopes.read_payloads, envelopes.SPARK_READ)

        self._per_day(CONTENT, "envelopes_read", ("envelope_documents",), read, source=CONTENT)
        for name, make in (
            ("envelope_payloads", envelopes.payloads),
            ("envelope_values", envelopes.values),
            ("envelope_quarantine", envelopes.quarantine),
        ):
            self._per_day(CONTENT, name, ("envelopes_read",), make, source=CONTENT)

    def audit(self) -> BuildResult:
        """Judge every proof of days that changed, or whose certificates or roots did."""
        certificates = known_certificates(self._lake)
        text = digest(
            [
                *(c.der.hex() + str(c.revoked_at) for c in certificates),
                *(root.hex() for root in self._settings.roots),
            ]
        )
        judge = judging(certificates, self._settings.roots)
        documents = self._lake.table(CONTENT, "documents")

        def judged(proven: Table, parts: Sequence[Part]) -> DataFrame:
            days = {part.partition for part in parts}
            held = [part for part in documents.pointer().parts if part.partition in days]
            if not held:
                return worked(self._spark, proven.files(parts), EVIDENCE, judge, AUDIT)
            # Of the journal row that the evidence is from: what its sender had signed.
            contents = self._read(documents, held).select(*facts.ROW, "content")
            told = self._read(proven, parts)
            wanted = (name for name in EVIDENCE.names if name in told.columns)
            evidence = told.select(*facts.ROW, *wanted)
            joined = evidence.join(contents, on=list(facts.ROW), how="left")
            return self._spread(joined).mapInArrow(judge, AUDIT)

        self._progress("gold.proof_audit")
        self._per_day(GOLD, AUDITED, ("proofs",), lambda found: found, also=text, read=judged)
        return self.result

    def forget_reasons(self) -> None:
        """After an erasure: the one table of gold with texts of single messages, made anew at once."""
        table = self._lake.table(GOLD, "failure_reasons")
        if table.exists():
            self._per_day(GOLD, "failure_reasons", ("messages",), figures.failure_reasons)
            table.vacuum(0)

    # ------------------------------------------------------------ marks

    def _known_marks(self) -> dict[str, Mark]:
        return marks(self._ranges())

    def _ranges(self) -> list[Range]:
        return bronze.ranges_of(self._lake.table(bronze.LAYER, bronze.TABLE).pointer().parts)

    def _mark_frame(self) -> DataFrame:
        rows = [
            (m.component, _moment(m.time), _moment(m.since)) for m in self._known_marks().values()
        ]
        return self._spark.createDataFrame(
            rows, "component string, time timestamp, since timestamp"
        )


def _moment(microseconds: int) -> datetime | None:
    """None: there is none."""
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC) if microseconds else None


def known_certificates(lake: Lake) -> list[KnownCertificate]:
    """Each certificate once; revoked when any journal says so, from the earliest such time on."""
    rows = lake.table(SILVER, "certificates").read(
        ["owner", "certificate_kind", "certificate_id", "der", "standing", "time"]
    )
    found: dict[bytes, KnownCertificate] = {}
    for row in [] if rows is None else rows.to_pylist():
        revoked = None
        if row["standing"] == "revoked":
            revoked = round(row["time"].timestamp() * 1_000_000)
        old = found.get(row["der"])
        if old is not None and old.revoked_at is not None:
            revoked = old.revoked_at if revoked is None else min(revoked, old.revoked_at)
        found[row["der"]] = KnownCertificate(
            row["owner"], row["certificate_kind"], row["certificate_id"], row["der"], revoked
        )
    return [found[der] for der in sorted(found)]
