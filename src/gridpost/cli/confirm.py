"""`gridpost confirm`: tell an endpoint that a received document is safe with the application."""

from __future__ import annotations

import typer

from gridpost.cli import application as shared

app = typer.Typer(add_completion=False)


@app.command()
def confirm(
    message_id: shared.MessageId,
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Confirm a received message: its sender is told RECEIVED."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        endpoint.confirm(message_id)
    shared.say({"messageID": message_id}, f"{message_id} is confirmed.", as_json)
