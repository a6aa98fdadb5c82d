"""What commands print: one JSON object, a line, or a table in which every value stands whole."""

from __future__ import annotations

import json
import sys
from typing import Any

import typer

# A table takes what it needs; who reads a pipe or a file has no width.
_NO_WIDTH = 10_000


def say(result: dict[str, Any], text: str, as_json: bool) -> None:
    typer.echo(json.dumps(result) if as_json else text)


def show(result: object, columns: list[str], rows: list[dict[str, Any]], as_json: bool) -> None:
    """The result as it is, or its rows as a table."""
    if as_json:
        typer.echo(json.dumps(result))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in columns:
        # What people copy into the next command stands on one line where the screen has room.
        table.add_column(column, overflow="fold", no_wrap=column in ("id", "code"))
    for row in rows:
        table.add_row(*("" if row.get(c) is None else str(row[c]) for c in columns))
    width = None if sys.stdout.isatty() else _NO_WIDTH
    Console(highlight=False, markup=False, width=width).print(table)
