"""`gridpost bench`: how fast a part of Gridpost is on this machine, as ratios that travel."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False)


@app.command()
def bench(
    name: Annotated[str | None, typer.Argument(help="Which bench; without it, list them.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
    ] = False,
) -> None:
    """Measure one part of Gridpost on this machine."""
    from gridpost.bench import available, run

    benches = available()
    if name is None:
        for line in [json.dumps({"benches": benches})] if as_json else benches:
            typer.echo(line)
        return
    if name not in benches:
        choices = ", ".join(benches) or "none"
        raise typer.BadParameter(f"no bench {name!r}; there is: {choices}", param_hint="NAME")
    result = run(name)
    if as_json:
        typer.echo(json.dumps(result))
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    machine = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    table = Table("", "value", title=f"{result['name']} on {machine}", title_justify="left")
    table.columns[1].justify = "right"
    for name, value in result["figures"].items():
        table.add_row(name, f"{value:,.6g}")
    table.add_section()
    for name, value in result["ratios"].items():
        table.add_row(name, f"{value:.3f}")
    console = Console(highlight=False)
    console.print(table)
    for title, rows in result.get("tables", {}).items():
        columns = list(dict.fromkeys(name for row in rows.values() for name in row))
        shown = Table("", *columns, title=title, title_justify="left")
        for column in shown.columns:
            column.no_wrap = True
        for column in shown.columns[1:]:
            column.justify = "right"
        for name, row in rows.items():
            shown.add_row(name, *(f"{row.get(column, 0):,.0f}" for column in columns))
        console.print(shown)
