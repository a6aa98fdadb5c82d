"""`gridpost status`: what became of a message."""

from __future__ import annotations

import typer

from gridpost.cli import application as shared

app = typer.Typer(add_completion=False)


@app.command()
def status(
    message_id: shared.MessageId,
    side: shared.SideOption = "sent",
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Show the status of a message: ACCEPTED, DELIVERED, RECEIVED or FAILED."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        found = endpoint.status(message_id, side)
    text = (
        f"{found.status or found.state} since {found.changed_at:%Y-%m-%d %H:%M:%S} UTC "
        f"({found.state}, {found.route})"
    )
    shared.say(found.raw, text, as_json)
