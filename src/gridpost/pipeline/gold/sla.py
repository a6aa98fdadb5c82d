"""Service levels: "X % within Y" per agreement (61968-100 6.14), computed exactly, never estimated."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline.gold.completeness import JOURNALS
from gridpost.pipeline.gold.delivery import MEASURES, journals, standard, views


@dataclass(frozen=True, slots=True)
class Agreement:
    """`message_type`, `sender` and `receiver` may be `*`; a type may end with it."""

    name: str
    percent: float
    within_seconds: float
    measure: str = "accept_to_deliver"
    message_type: str = "*"
    sender: str = "*"
    receiver: str = "*"


@dataclass(frozen=True, slots=True)
class ResponseAgreement:
    """61968-100 cl. 6.14, for requests to a bus; `verb`, `noun` and `context` may be `*`."""

    name: str
    percent: float
    within_seconds: float
    verb: str = "*"
    noun: str = "*"
    context: str = "*"


@dataclass(frozen=True, slots=True)
class Agreements:
    deliveries: tuple[Agreement, ...] = ()
    responses: tuple[ResponseAgreement, ...] = ()


def read_agreements(file: Path) -> Agreements:
    """TOML: one `[[agreement]]` for each way of messages, one `[[response]]` for requests to a bus."""
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        agreements = tuple(Agreement(**line) for line in content.get("agreement", ()))
        responses = tuple(ResponseAgreement(**line) for line in content.get("response", ()))
    except OSError as error:
        raise Refusal(Rule.USAGE, f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
        raise Refusal(Rule.USAGE, f"{file}: {error}") from None
    for agreement in agreements:
        if agreement.measure not in MEASURES:
            raise Refusal(
                Rule.USAGE,
                f"{file}: {agreement.name}: measure must be one of {', '.join(MEASURES)}",
            )
    both: tuple[Agreement | ResponseAgreement, ...] = (*agreements, *responses)
    for one in both:
        if not 0 < one.percent <= 100 or one.within_seconds <= 0:
            raise Refusal(Rule.USAGE, f"{file}: {one.name}: percent or time is impossible")
    return Agreements(agreements, responses)


def sla(messages: DataFrame, agreements: Sequence[Agreement]) -> DataFrame | None:
    """A message that did not make it counts against its agreement; one under way does not yet."""
    found: DataFrame | None = None
    frame = standard(messages).select("*", views())
    for agreement in agreements:
        start, end = MEASURES[agreement.measure]
        mine = frame
        if agreement.message_type != "*":
            mine = mine.where(F.col("message_type").like(agreement.message_type.replace("*", "%")))
        for column, value in (
            ("sender_code", agreement.sender),
            ("receiver_code", agreement.receiver),
        ):
            if value != "*":
                mine = mine.where(F.col(column) == value)
        took = F.unix_micros(end) - F.unix_micros(start)
        limit = int(agreement.within_seconds * 1_000_000)
        decided = took.isNotNull() | (F.col("status") == "FAILED")
        rows = (
            mine.where(decided)
            .groupBy("day")
            .agg(
                F.count("*").alias("messages"),
                F.count(F.when(took <= limit, 1)).alias("within"),
                F.expr(
                    f"percentile_disc({agreement.percent / 100}) within group (order by "
                    f"unix_micros({end}) - unix_micros({start}))"
                ).alias("percentile_us"),
                journals(),
            )
            .select(
                "day",
                F.lit(agreement.name).alias("agreement"),
                F.lit(agreement.measure).alias("measure"),
                F.lit(agreement.percent).cast("decimal(7,4)").alias("percent"),
                F.lit(limit).cast("long").alias("within_us"),
                "messages",
                "within",
                F.col("percentile_us").cast("long").alias("percentile_us"),
                (
                    F.col("within") * 1_000_000
                    >= F.col("messages") * int(agreement.percent * 10_000)
                ).alias("conforms"),
                JOURNALS,
            )
        )
        found = rows if found is None else found.unionByName(rows)
    return found
