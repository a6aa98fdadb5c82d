"""`gridpost demo`: a whole exchange on this machine, from a document to its verified proof."""

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
        int, typer.Option("--messages", min=1, help="How many documents to exchange.")
    ] = 1,
    home: Annotated[
        Path | None,
        typer.Option(
            "--home", file_okay=False, help="Keep keys and data here, not in a temporary folder."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
    ] = False,
) -> None:
    """Exchange documents between two endpoints and verify the proof of delivery."""
    from rich.console import Console

    from gridpost.demo import run_demo

    console = Console(quiet=as_json, highlight=False, markup=False)
    result = run_demo(once=once, messages=messages, home=home, say=console.print)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
    if result.failed:
        raise typer.Exit(1)
