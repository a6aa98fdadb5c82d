"""`gridpost check-config`: whether a component would start with this file, without starting it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def check_config(
    file: Annotated[Path, typer.Argument(help="Configuration file (TOML).")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
    ] = False,
) -> None:
    """Check a configuration file and everything that it names."""
    from gridpost.assembly.check import check

    result = check(file)
    if as_json:
        typer.echo(
            json.dumps(
                {"component": result.component, "code": result.code, "warnings": result.warnings}
            )
        )
        return
    for warning in result.warnings:
        typer.echo(f"warning: {warning}", err=True)
    typer.echo(f"{file} is a good configuration of the {result.component} {result.code}.")
