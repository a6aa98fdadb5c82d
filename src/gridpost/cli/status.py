"""`gridpost status`: what became of a message."""

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
def status(
    endpoint: Endpoint,
    message_id: shared.MessageId,
    side: shared.SideOption = "sent",
    as_json: shared.Json = False,
) -> None:
    """Show the status of a message: ACCEPTED, DELIVERED, RECEIVED or FAILED."""
    found = endpoint.status(message_id, side)
    text = (
        f"{found.status or found.state} since {found.changed_at:%Y-%m-%d %H:%M:%S} UTC "
        f"({found.state}, {found.route})"
    )
    say(found.raw, text, as_json)
