"""`gridpost send`: hand a document to an endpoint, or test the way to a recipient."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gridpost.cli import application as shared
from gridpost.cli.output import say

if TYPE_CHECKING:
    from gridpost.client import Endpoint

app = typer.Typer(add_completion=False)


@app.command()
@shared.connected
def send(
    endpoint: Endpoint,
    receiver: Annotated[str, typer.Argument(help="Code of the recipient endpoint.")],
    message_type: Annotated[str, typer.Argument(help="Message-type.")],
    file: Annotated[
        Path | None, typer.Argument(help="The document; standard input when there is none.")
    ] = None,
    ba_message_id: Annotated[
        str, typer.Option("--ba-message-id", help="The application's own ID of the document.")
    ] = "",
    sender_application: Annotated[
        str, typer.Option("--sender-application", help="Name of the sending application.")
    ] = "",
    idempotency_key: Annotated[
        str,
        typer.Option(
            "--idempotency-key",
            help="With the same key nothing is sent twice; by default application and document ID.",
        ),
    ] = "",
    test: Annotated[
        bool, typer.Option("--test", help="Send no document but a connectivity test.")
    ] = False,
    as_json: shared.Json = False,
) -> None:
    """Send a document. The message ID that is printed is proof that it is safely stored."""
    from gridpost.core.refusal import Refusal, Rule

    if test:
        message_id = endpoint.test(receiver, message_type)
    else:
        try:
            content = sys.stdin.buffer.read() if file is None else file.read_bytes()
        except OSError as error:
            raise Refusal(Rule.USAGE, f"{file} cannot be read: {error.strerror}") from None
        message_id = endpoint.send(
            receiver,
            message_type,
            content,
            ba_message_id=ba_message_id,
            sender_application=sender_application,
            key=idempotency_key or None,
        )
    say({"messageID": message_id}, message_id, as_json)
