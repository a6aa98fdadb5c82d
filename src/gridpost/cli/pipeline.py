"""`gridpost pipeline`: from journals to tables, key figures and proofs, on Spark."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gridpost.pipeline.build import BuildSettings
    from gridpost.pipeline.files import Place
    from gridpost.pipeline.jobs import Pipeline

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="From every component's journal to tables, key figures and proofs.",
)

LakeOption = Annotated[
    str,
    typer.Option(
        "--lake",
        envvar="GRIDPOST_LAKE",
        help="The lake: a folder, or an address as Spark takes it.",
    ),
]
Master = Annotated[str, typer.Option("--master", help="Spark master; default: this machine.")]
Remote = Annotated[str, typer.Option("--remote", help="Spark Connect server, sc://host:port.")]
Memory = Annotated[str, typer.Option("--driver-memory", help="Memory of a Spark on this machine.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]
Landing = Annotated[
    list[str] | None,
    typer.Option("--landing", help="Landing folder besides that of the lake; repeatable."),
]
Agreements = Annotated[
    Path | None,
    typer.Option("--agreements", help="Service levels (TOML), see the operations page."),
]
Roots = Annotated[
    list[Path] | None, typer.Option("--root", help="ROOT CA that you trust (PEM); repeatable.")
]
Stuck = Annotated[
    int, typer.Option("--stuck-after", min=1, help="Seconds after which an open message is stuck.")
]
Zone = Annotated[
    str,
    typer.Option(
        "--zone", help="Zone of the market, for the delivery day; default: Europe/Brussels."
    ),
]
DEFAULT_LAKE = "lake"


@app.command()
def ingest(
    lake: LakeOption = DEFAULT_LAKE,
    landing: Landing = None,
    max_files: Annotated[
        int, typer.Option("--max-files", min=1, help="Most segments of one batch.")
    ] = 256,
    replay: Annotated[
        bool, typer.Option("--replay", help="Judge quarantined rows again instead.")
    ] = False,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on: ingest, build and tell alerts.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between rounds when continuous.")
    ] = 30.0,
    silence: Annotated[
        float, typer.Option("--silence", min=1, help="Seconds without news that are an alert.")
    ] = 900.0,
    stuck_after: Stuck = 900,
    agreements: Agreements = None,
    zone: Zone = "",
    format: Annotated[
        str, typer.Option("--format", help="How a new lake keeps its tables: parquet or delta.")
    ] = "",
    master: Master = "local[*]",
    remote: Remote = "",
    driver_memory: Memory = "2g",
    as_json: Json = False,
) -> None:
    """Admit landed segments and read them into bronze."""
    settings = _settings(agreements, None, stuck_after, zone) if continuous else None
    with _pipeline(
        lake, master, remote, driver_memory, as_json, create=True, format=format
    ) as pipeline:
        landings = [_folder(folder) for folder in landing or []]
        if replay:
            _show("replay", pipeline.replay(), as_json)
            return
        if settings is not None:
            _continuous(pipeline, landings, interval, silence, settings)
            return
        done = pipeline.ingest(landings, max_files=max_files)
    _show("ingest", done, as_json)


@app.command()
def build(
    lake: LakeOption = DEFAULT_LAKE,
    agreements: Agreements = None,
    stuck_after: Stuck = 900,
    zone: Zone = "",
    full: Annotated[
        bool, typer.Option("--full", help="Make every table anew instead of changed days.")
    ] = False,
    master: Master = "local[*]",
    remote: Remote = "",
    driver_memory: Memory = "2g",
    as_json: Json = False,
) -> None:
    """Bring silver and gold tables up to date: only days that changed."""
    settings = _settings(agreements, None, stuck_after, zone)
    with _pipeline(lake, master, remote, driver_memory, as_json) as pipeline:
        done = pipeline.build(settings, full=full)
    _show("build", done, as_json)


@app.command()
def verify(
    lake: LakeOption = DEFAULT_LAKE,
    root: Roots = None,
    master: Master = "local[*]",
    remote: Remote = "",
    driver_memory: Memory = "2g",
    as_json: Json = False,
) -> None:
    """Judge every archived proof: signatures, fingerprints, certificates, acknowledgements."""
    settings = _settings(None, root)
    with _pipeline(lake, master, remote, driver_memory, as_json) as pipeline:
        done = pipeline.verify(settings)
    _show("verify", done, as_json)


@app.command()
def kpi(
    lake: LakeOption = DEFAULT_LAKE,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by", help="Group by day, hour, message_type, route, sender_code or receiver_code."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show key figures of delivery. Needs no Spark."""
    from gridpost.pipeline.key_figures import GROUPS, key_figures
    from gridpost.pipeline.lake import Lake

    groups = by or []
    for name in groups:
        if name not in GROUPS:
            raise typer.BadParameter(f"{name!r}: choose of {', '.join(GROUPS)}", param_hint="--by")
    rows = key_figures(Lake.open(lake), groups)
    if as_json:
        typer.echo(json.dumps({"by": groups, "figures": rows}))
        return
    columns = [
        *groups,
        "messages",
        "delivered",
        "received",
        "failed",
        "expired",
        "accept_to_deliver_p50_ms",
        "accept_to_deliver_p99_ms",
        "complete_up_to",
    ]
    _table("key figures", columns, [[row.get(c) for c in columns] for row in rows])


@app.command()
def compact(
    lake: LakeOption = DEFAULT_LAKE,
    grace: Annotated[
        float, typer.Option("--grace", min=0, help="Seconds that old folders stay for readers.")
    ] = 3600.0,
    master: Master = "local[*]",
    remote: Remote = "",
    driver_memory: Memory = "2g",
    as_json: Json = False,
) -> None:
    """Put small parts of tables together and remove what nobody reads any more."""
    with _pipeline(lake, master, remote, driver_memory, as_json) as pipeline:
        done = pipeline.compact(grace=grace)
    _show("compact", done, as_json)


@app.command()
def report(
    lake: LakeOption = DEFAULT_LAKE,
    out: Annotated[Path, typer.Option("--out", help="Where the HTML file goes.")] = Path(
        "report.html"
    ),
    as_json: Json = False,
) -> None:
    """Write one HTML file with figures and charts that opens without internet. Needs no Spark."""
    from gridpost.pipeline.lake import Lake
    from gridpost.pipeline.report import write_report

    done = write_report(Lake.open(lake), out)
    _show("report", done, as_json)


@app.command()
def market(
    lake: LakeOption = DEFAULT_LAKE,
    known_at: Annotated[
        str, typer.Option("--known-at", help="As known at this time (ISO 8601); default: now.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="File for their points: .parquet or .csv.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show which market documents hold, now or as known at a time. Needs no Spark."""
    from gridpost.pipeline.lake import Lake
    from gridpost.pipeline.market_holding import holding_documents, points_of, write_points

    opened = Lake.open(lake)
    documents = holding_documents(opened, _moment(known_at))
    points = None if out is None else write_points(points_of(opened, documents), out)
    shown = [{name: _text(value) for name, value in row.items()} for row in documents]
    if as_json:
        file = None if out is None else str(out)
        typer.echo(json.dumps({"documents": shown, "file": file, "points": points}))
        return
    columns = ["document_mrid", "revision", "document", "sender", "period_start", "points"]
    _table("documents that hold", columns, [[row[c] for c in columns] for row in shown])
    if out is not None:
        typer.echo(f"{points} points in {out}.")


@app.command()
def parties(
    file: Annotated[Path, typer.Argument(help="EIC list (CSV).")],
    lake: LakeOption = DEFAULT_LAKE,
    as_json: Json = False,
) -> None:
    """Import an EIC list: codes, names, types and validity of parties. Needs no Spark."""
    from gridpost.pipeline.lake import Lake
    from gridpost.pipeline.parties import import_parties

    opened = Lake.open(lake, create=True)
    with opened.writing():
        done = import_parties(opened, file)
    _show("parties", done, as_json)


@app.command()
def erase(
    message_id: Annotated[list[str], typer.Argument(help="Message IDs.")],
    lake: LakeOption = DEFAULT_LAKE,
    landing: Landing = None,
    master: Master = "local[*]",
    remote: Remote = "",
    driver_memory: Memory = "2g",
    as_json: Json = False,
) -> None:
    """Take documents and texts of messages out of the whole lake; ids and proofs stay."""
    with _pipeline(lake, master, remote, driver_memory, as_json) as pipeline:
        done = pipeline.erase(message_id, [_folder(folder) for folder in landing or []])
    _show("erase", done, as_json)


@contextmanager
def _pipeline(
    folder: str,
    master: str,
    remote: str,
    memory: str,
    as_json: bool,
    *,
    create: bool = False,
    format: str = "",
) -> Iterator[Pipeline]:
    from rich.console import Console

    from gridpost.pipeline.jobs import Pipeline
    from gridpost.pipeline.lake import DELTA, Lake
    from gridpost.pipeline.session import SessionSettings, check_spark, start

    check_spark()
    lake = Lake.open(folder, create=create, format=format)
    sessions: list[Any] = []

    def session() -> Any:
        if not sessions:
            sessions.append(
                start(SessionSettings(master, remote, memory, delta=lake.format == DELTA))
            )
        return sessions[0]

    # Progress is for people: on stderr, and not at all where nobody looks.
    console = Console(stderr=True, quiet=as_json)
    with console.status("starting") as status:
        try:
            yield Pipeline(lake, session, status.update)
        finally:
            for one in sessions:
                one.stop()


def _continuous(
    pipeline: Pipeline,
    landing: list[Place],
    interval: float,
    silence: float,
    settings: BuildSettings,
) -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    pipeline.continuous(
        settings,
        landing,
        stop.wait,
        interval=interval,
        silence=silence,
        # One line for each change: a stream of JSON that other programs can follow.
        told=lambda line: typer.echo(json.dumps(line)),
    )


def _settings(
    agreements: Path | None,
    roots: list[Path] | None,
    stuck_after: int = 900,
    zone: str = "",
) -> BuildSettings:
    from zoneinfo import ZoneInfo

    from gridpost.core.refusal import Refusal, Rule
    from gridpost.pipeline.session import check_spark

    check_spark()
    from gridpost.pipeline.build import BuildSettings
    from gridpost.pipeline.gold.sla import Agreements, read_agreements
    from gridpost.pipeline.silver.market import DEFAULT_ZONE
    from gridpost.wire.x509 import from_pem

    trusted: list[bytes] = []
    for file in roots or []:
        try:
            trusted += from_pem(file.read_bytes())
        except OSError as error:
            raise Refusal(Rule.USAGE, f"{file} cannot be read: {error.strerror}") from None
    zone = zone or DEFAULT_ZONE
    try:
        ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        raise Refusal(Rule.USAGE, f"{zone} is not a zone: write it as in Europe/London") from None
    agreed = Agreements() if agreements is None else read_agreements(agreements)
    return BuildSettings(
        agreed.deliveries, tuple(trusted), stuck_after, zone, responses=agreed.responses
    )


def _moment(text: str) -> datetime | None:
    """A time without a zone is UTC, as all times of the lake are."""
    if not text:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time", param_hint="--known-at") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _folder(folder: str) -> Place:
    from gridpost.core.refusal import Refusal, Rule
    from gridpost.pipeline.files import place

    found = place(folder)
    if not found.is_dir():
        raise Refusal(Rule.USAGE, f"{folder} is not a folder")
    return found


def _show(title: str, result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    rows = []
    for name, value in result.items():
        if isinstance(value, dict):
            rows += [[f"{name}: {key}", one] for key, one in value.items()]
        elif isinstance(value, list):
            rows.append([name, len(value) if len(value) > 5 else ", ".join(map(str, value))])
        else:
            rows.append([name, value])
    _table(title, ["", "value"], rows)


def _table(title: str, columns: list[str], rows: list[list[Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(
            *(f"{v:,}" if isinstance(v, int) else "" if v is None else str(v) for v in row)
        )
    Console(highlight=False).print(table)
