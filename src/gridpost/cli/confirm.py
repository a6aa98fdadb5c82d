"""`gridpost confirm`: tell an endpoint that a received document is safe with the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gridpost.cli import application as shared
from gridpost.cli.output import say

if TYPE_CHECKING:
    from gridpost.client import Endpoint

app = typer.Typer(add_completion=False)


@app.command()
@shared.connected
def confirm(
    endpoint: Endpoint,
    message_id: shared.MessageId,
    as_json: shared.Json = False,
) -> None:
    """Confirm a received message: its sender is told RECEIVED."""
    endpoint.confirm(message_id)
    say({"messageID": message_id}, f"{message_id} is confirmed.", as_json)
