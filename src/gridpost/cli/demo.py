"""`gridpost demo`: a whole network on this machine, from registration to verified proofs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    once: Annotated[
        bool, typer.Option("--once", help="End after the exchange instead of staying up.")
    ] = False,
    messages: Annotated[
        int, typer.Option("--messages", min=1, help="Documents per direction and channel.")
    ] = 1,
    home: Annotated[
        Path | None,
        typer.Option("--home", file_okay=False, help="Keep the network here for the next start."),
    ] = None,
    pipeline: Annotated[
        bool,
        typer.Option(
            "--pipeline/--no-pipeline", help="Key figures from all journals, where Java is here."
        ),
    ] = True,
    further: Annotated[
        bool,
        typer.Option(
            "--further/--no-further", help="Capacity, bus and a MADES 1.1 node beside the network."
        ),
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
    ] = False,
) -> None:
    """Start a network, exchange documents in all directions, verify the proofs of delivery."""
    from rich.console import Console

    from gridpost.demo import DemoPlan, run_demo

    console = Console(quiet=as_json, highlight=False)
    result = run_demo(DemoPlan(once, messages, home, pipeline, further), console)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
    if result.failed:
        raise typer.Exit(1)
