"""What the demonstration shows on the screen: lines of progress, and tables of what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from gridpost.demo.exchange import Delivery

SHOWN = 40
"""Rows of the closing table; more documents than that are summed up."""


def progress(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<32}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[last]}"),
        console=console,
    )


def stage(shown: Progress, name: str, total: int) -> Callable[[str], None]:
    """One line; call the result with what was just done."""
    task = shown.add_task(name, total=total, last="")
    return lambda what: shown.update(task, advance=1, last=what)


def delivered(console: Console, deliveries: list[Delivery]) -> None:
    table = Table(title="What was delivered", title_justify="left")
    for heading in ("channel", "from", "to", "route", "status"):
        table.add_column(heading, no_wrap=True)
    table.add_column("ms", justify="right")
    table.add_column("proof")
    ordered = sorted(deliveries, key=lambda d: (d.channel, d.sender, d.receiver))
    for d in ordered[:SHOWN]:
        table.add_row(
            d.channel,
            d.sender,
            d.receiver,
            d.route.replace("INDIRECT:", "via "),
            d.status,
            f"{d.milliseconds:.0f}",
            "verified" if d.proven else "missing",
        )
    console.print(table)
    if len(ordered) > SHOWN:
        console.print(f"and {len(ordered) - SHOWN} more")


def further(console: Console, parts: Mapping[str, Any], left_out: Mapping[str, str]) -> None:
    if parts:
        table = Table(title="Beside it", title_justify="left", show_header=False)
        for name, done in sorted(parts.items()):
            table.add_row(
                name, ", ".join(f"{k.replace('_', ' ')} {_told(v)}" for k, v in done.items())
            )
        console.print(table)
    for name, reason in sorted(left_out.items()):
        console.print(f"Left out: {name}, because {reason}.")


def key_figures(console: Console, found: Mapping[str, Any]) -> None:
    table = Table(title="Key figures", title_justify="left", show_header=False)
    for name, value in found.items():
        table.add_row(name.replace("_", " "), _told(value))
    console.print(table)


def _told(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{count} {what}" for what, count in value.items())
    if isinstance(value, list):
        return " and ".join(map(str, value))
    return str(value)
