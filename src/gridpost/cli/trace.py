"""`gridpost trace`: everything that happened to a message, line by line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gridpost.cli import application as shared
from gridpost.cli.output import show

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
    lines = endpoint.trace(message_id, side)
    rows = [
        {
            "at": line.at.isoformat(),
            "event": line.event,
            "state": line.state,
            "moved": line.moved,
            "detail": line.detail,
        }
        for line in lines
    ]
    columns = ["at", "event", "state", "detail"]
    show({"messageID": message_id, "trace": rows}, columns, rows, as_json)
