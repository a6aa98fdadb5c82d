"""`gridpost explain`: why a message is not there yet, and who must act."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gridpost.cli import application as shared
from gridpost.cli.output import say

if TYPE_CHECKING:
    from gridpost.client import Endpoint

app = typer.Typer(add_completion=False)

_MARKS = {True: "ok", False: "!!", None: ".."}


@app.command()
@shared.connected
def explain(
    endpoint: Endpoint,
    message_id: shared.MessageId,
    side: shared.SideOption = "sent",
    as_json: shared.Json = False,
) -> None:
    """Explain a message in one line, with the way it takes below."""
    found = endpoint.explain(message_id, side)
    result = {
        "messageID": message_id,
        "explanation": found.summary,
        "mustAct": found.must_act,
        "steps": [{"step": n, "good": g, "text": t} for n, g, t in found.steps],
    }
    lines = [f"{found.summary} -> {found.must_act} must act"]
    lines += [f"  {_MARKS[good]} {name}: {text}" for name, good, text in found.steps]
    say(result, "\n".join(lines), as_json)
