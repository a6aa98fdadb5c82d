"""`gridpost trace`: everything that happened to a message, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gridpost.cli import application as shared

if TYPE_CHECKING:
    from gridpost.client import Endpoint

app = typer.Typer(add_completion=False)


@app.command()
@shared.connected
def trace(
    endpoint: Endpoint,
    message_id: shared.MessageId,
    side: shared.SideOption = "sent",
    as_json: shared.Json = False,
) -> None:
    """Show the trace of a message."""
    from rich.console import Console
    from rich.table import Table

    lines = endpoint.trace(message_id, side)
    result = {
        "messageID": message_id,
        "trace": [
            {
                "at": line.at.isoformat(),
                "event": line.event,
                "state": line.state,
                "moved": line.moved,
                "detail": line.detail,
            }
            for line in lines
        ],
    }
    if as_json:
        shared.say(result, "", as_json)
        return
    table = Table("at", "event", "state", "detail")
    for line in lines:
        table.add_row(line.at.isoformat(), line.event, line.state, line.detail)
    Console(highlight=False, markup=False).print(table)
