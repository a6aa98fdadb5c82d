"""The commands of the pipeline as functions: each can be run again at any time, each says what it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline import admit as admission
from gridpost.pipeline.erased_segments import empty_arrived
from gridpost.pipeline.files import Place
from gridpost.pipeline.lake import Lake, Progress, Table, silent
from gridpost.pipeline.runs import counting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gridpost.pipeline.build import BuildSettings

# What nobody could make anew from bronze.
KEPT = ("silver.tombstones", "silver.parties")

Session = Callable[[], "SparkSession"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A lake and the way to a Spark session, which is started only where one is needed."""

    lake: Lake
    session: Session
    progress: Progress = silent

    def writing(self) -> AbstractContextManager[None]:
        return self.lake.writing()

    # ------------------------------------------------------------ ingest

    def ingest(self, landings: Sequence[Place] = (), *, max_files: int = 256) -> dict[str, Any]:
        started = time.monotonic()
        with self.writing():
            self.progress("admitting segments")
            admitted = admission.admit(self.lake, (self.lake.landing, *landings), datetime.now(UTC))
            empty_arrived(self.lake)
            batches = []
            if self.lake.admitted.glob("*/segment.*.parquet"):
                from gridpost.pipeline import bronze

                self.progress("starting Spark")
                spark = self.session()
                self.progress("reading segments")
                with counting(self.lake, "ingest") as run:
                    batches = bronze.ingest(
                        spark, self.lake, max_files=max_files, progress=self.progress
                    )
                    run["rows"] = sum(batch.rows_out for batch in batches)
        rows = sum(batch.rows_out for batch in batches)
        return {
            "segments": len(admitted.admitted),
            "octets": admitted.octets,
            "quarantined_segments": [
                {"segment": name, "reason": reason} for name, reason in admitted.quarantined
            ],
            "batches": len(batches),
            "rows": rows,
            "quarantined": sum(batch.quarantined for batch in batches),
            "repeated": sum(batch.repeated for batch in batches),
            "seconds": round(time.monotonic() - started, 3),
        }

    def replay(self) -> dict[str, Any]:
        """Judge quarantined rows again."""
        from gridpost.pipeline.replay import replay

        with self.writing():
            self.progress("starting Spark")
            return replay(self.session(), self.lake)

    def continuous(
        self,
        settings: BuildSettings,
        landings: Sequence[Place],
        stop: Callable[[float], bool],
        *,
        interval: float,
        silence: float,
        told: Callable[[dict[str, Any]], None],
    ) -> None:
        """Ingest, build and tell alerts that came and went, until `stop` says so."""
        from gridpost.pipeline.alerts import changes, evaluate

        standing: dict[str, dict[str, Any]] = {}
        unbuilt = True
        while True:
            try:
                unbuilt = self.ingest(landings)["rows"] > 0 or unbuilt
                if unbuilt:
                    self.build(settings)
                    unbuilt = False
            except Refusal as refusal:
                # Another command has its turn, a compaction perhaps: what is there is judged all the same.
                if refusal.rule is not Rule.STORE_IN_USE:
                    raise
                self.progress(refusal.message)
            now = evaluate(self.lake, datetime.now(UTC), silence, settings.stuck_after_seconds)
            for line in changes(standing, now):
                told(line)
            standing = now
            if stop(interval):
                return

    # ------------------------------------------------------------ build and verify

    def build(self, settings: BuildSettings, *, full: bool = False) -> dict[str, Any]:
        from gridpost.pipeline.build import Builder
        from gridpost.pipeline.incremental import CONTENT, GOLD, SILVER

        started = time.monotonic()
        with self.writing():
            if full:
                for table in list(self.lake.tables()):
                    layer = table.name.partition(".")[0]
                    if layer in (SILVER, CONTENT, GOLD) and table.name not in KEPT:
                        _outdate(table)
            self.progress("starting Spark")
            builder = Builder(self.session(), self.lake, settings, self.progress)
            with counting(self.lake, "build") as run:
                result = builder.run()
                run["rows"] = sum(result.rows.values())
        return {
            "build": result.build,
            "days": sorted(result.days),
            "rows": result.rows,
            "seconds": round(time.monotonic() - started, 3),
        }

    def verify(self, settings: BuildSettings) -> dict[str, Any]:
        from gridpost.pipeline.build import Builder

        started = time.monotonic()
        with self.writing():
            self.progress("starting Spark")
            builder = Builder(self.session(), self.lake, settings, self.progress)
            with counting(self.lake, "verify") as run:
                run["rows"] = sum(builder.audit().rows.values())
        return {
            **audit_summary(self.lake),
            "seconds": round(time.monotonic() - started, 3),
        }

    # ------------------------------------------------------------ upkeep

    def compact(self, *, grace: float, small: int = 2) -> dict[str, Any]:
        from gridpost.pipeline.compaction import compact

        started = time.monotonic()
        with self.writing():
            self.progress("starting Spark")
            spark = self.session()
            with counting(self.lake, "compact"):
                done = compact(spark, self.lake, grace=grace, small=small, progress=self.progress)
        return {**done, "seconds": round(time.monotonic() - started, 3)}

    def erase(self, message_ids: Iterable[str], landings: Sequence[Place] = ()) -> dict[str, Any]:
        from gridpost.pipeline.build import Builder
        from gridpost.pipeline.erasure import erase

        wanted = sorted(set(message_ids))
        with self.writing():
            self.progress("starting Spark")
            spark = self.session()
            done = erase(spark, self.lake, wanted, datetime.now(UTC), landings)
            Builder(spark, self.lake).forget_reasons()
        return done


def _outdate(table: Table) -> None:
    """Readers keep it until the one that takes its place is there."""
    try:
        table.outdate()
    except Refusal as refusal:
        if refusal.rule is not Rule.USAGE:
            raise
        # Somebody else has changed it: nobody is reading it.
        table.folder.rmtree()


def audit_summary(lake: Lake) -> dict[str, Any]:
    rows = lake.table("gold", "proof_audit").read(["verdict", "origin_reason", "receipt_reason"])
    if rows is None:
        return {"proofs": 0, "verdicts": {}, "reasons": {}}
    verdicts: dict[str, int] = {}
    reasons: dict[str, int] = {}
    for row in rows.to_pylist():
        verdicts[row["verdict"]] = verdicts.get(row["verdict"], 0) + 1
        for reason in {row["origin_reason"], row["receipt_reason"]} - {""}:
            reasons[reason] = reasons.get(reason, 0) + 1
    return {"proofs": rows.num_rows, "verdicts": verdicts, "reasons": reasons}


def lake_summary(lake: Lake) -> list[dict[str, Any]]:
    return [
        {"table": table.name, **_size(table.pointer()), "octets": table.octets()}
        for table in lake.tables()
    ]


def _size(pointer: Any) -> dict[str, Any]:
    return {"rows": pointer.rows, "parts": len(pointer.parts), "version": pointer.version}


def plain(value: Any) -> dict[str, Any]:
    return asdict(value)
