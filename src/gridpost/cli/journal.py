"""`gridpost journal`: a component's journal as Parquet segments for the pipeline."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gridpost.stores.segments.export import Export

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The journal of a component.")


@app.callback()
def journal() -> None:
    """The journal of a component."""


@app.command()
def export(
    config: Annotated[Path, typer.Option("--config", help="Configuration of the component.")],
    landing: Annotated[
        str | None,
        typer.Option(
            "--landing",
            help="Landing folder, a path or an address; default: as configured, or landing in its home.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on until stopped, once in each interval.")
    ] = False,
    interval: Annotated[
        float, typer.Option("--interval", min=0.1, help="Seconds between segments when following.")
    ] = 10.0,
    until_input_ends: Annotated[
        bool,
        typer.Option(
            "--until-input-ends", help="Stop following when standard input ends: for a parent."
        ),
    ] = False,
    rows: Annotated[int, typer.Option("--rows", min=1, help="Most rows of one segment.")] = 250_000,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
    ] = False,
) -> None:
    """Write what is new in the journal into immutable segments."""
    from gridpost.assembly.journal_export import export_job

    job = export_job(config, landing, rows)
    if not follow:
        done = job.once()
        typer.echo(json.dumps(_sum({}, done)) if as_json else _sentences(done))
        return
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    if until_input_ends:
        threading.Thread(target=_wait_for_end, args=(stop,), daemon=True).start()
    total: dict[str, Any] = {}
    started, used = job.component_cpu_seconds(), time.process_time()
    for done in job.follow(timedelta(seconds=interval), stop):
        total = _sum(total, done)
        if not as_json and any(run.segments for run in done):
            typer.echo(_sentences(done))
    total = {**total, **_share(started, job.component_cpu_seconds(), time.process_time() - used)}
    typer.echo(json.dumps(total) if as_json else _cost(total))


def _wait_for_end(stop: threading.Event) -> None:
    """Whoever holds the other end of the pipe has closed it, or is no more."""
    while sys.stdin.buffer.read(4096):
        pass
    stop.set()


def _share(started: float | None, ended: float | None, used: float) -> dict[str, Any]:
    """What following cost, beside what the component used in the same time."""
    there = None if started is None or ended is None else ended - started
    return {
        "exporter_cpu_seconds": round(used, 3),
        "component_cpu_seconds": None if there is None else round(there, 3),
        "cpu_share": round(used / there, 4) if there else None,
    }


def _cost(total: dict[str, Any]) -> str:
    text = f"The exporter used {total['exporter_cpu_seconds']} CPU seconds"
    if total["cpu_share"] is None:
        return f"{text}; the component was not running beside it."
    return f"{text}, {total['cpu_share']:.1%} of those of the component."


def _sum(known: dict[str, Any], runs: list[Export]) -> dict[str, Any]:
    """All journals of the component together, with what was done before."""
    return {
        "component": runs[0].identity.component if runs else known.get("component", ""),
        "instances": sorted(
            {*known.get("instances", ()), *(run.identity.instance for run in runs)}
        ),
        "segments": known.get("segments", 0) + sum(len(run.segments) for run in runs),
        "rows": known.get("rows", 0) + sum(run.rows for run in runs),
        "lost": [*known.get("lost", ()), *(list(gap) for run in runs for gap in run.lost)],
        "cpu_seconds": round(
            known.get("cpu_seconds", 0.0) + sum(run.cpu_seconds for run in runs), 6
        ),
    }


def _sentences(runs: list[Export]) -> str:
    return "\n".join(map(_sentence, runs)) or "There is no journal yet."


def _sentence(run: Export) -> str:
    text = f"{run.identity.component}: {run.rows} rows in {len(run.segments)} segments."
    for first, last in run.lost:
        text += f" Rows {first} to {last} were pruned before they were exported."
    return text
