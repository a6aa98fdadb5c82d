"""`gridpost receive`: take the next document of a message-type from an endpoint."""

from __future__ import annotations

import sys
from base64 import b64encode
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
def receive(
    endpoint: Endpoint,
    message_type: Annotated[str, typer.Argument(help="Message-type, without wildcard.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the document goes; else standard output.")
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Confirm it once it is written.")
    ] = False,
    as_json: shared.Json = False,
) -> None:
    """Receive the first waiting document; the same one comes again until it is confirmed."""
    found = endpoint.receive(message_type)
    if found is None:
        say({"message": None, "remaining": 0}, f"No {message_type} is waiting.", as_json)
        return
    content = found.content or b""
    result = {"message": found.message.raw, "remaining": found.remaining}
    if out is not None:
        out.write_bytes(content)
        result["file"] = str(out)
    elif as_json:
        result["message"] = {**found.message.raw, "content": b64encode(content).decode()}
    else:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    if confirm:
        endpoint.confirm(found.message.message_id)
        result["confirmed"] = True
    text = (
        f"{found.message.message_id} from {found.message.sender}, {len(content)} bytes"
        f"{', confirmed' if confirm else ''}; {found.remaining} more"
    )
    if as_json:
        say(result, text, as_json)
    else:
        typer.echo(text, err=True)
