"""`gridpost explain`: why a message is not there yet, and who must act."""

from __future__ import annotations

import typer

from gridpost.cli import application as shared

app = typer.Typer(add_completion=False)

_MARKS = {True: "ok", False: "!!", None: ".."}


@app.command()
def explain(
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
    """Explain a message in one line, with the way it takes below."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        found = endpoint.explain(message_id, side)
    result = {
        "messageID": message_id,
        "explanation": found.summary,
        "mustAct": found.must_act,
        "steps": [{"step": n, "good": g, "text": t} for n, g, t in found.steps],
    }
    lines = [f"{found.summary} -> {found.must_act} must act"]
    lines += [f"  {_MARKS[good]} {name}: {text}" for name, good, text in found.steps]
    shared.say(result, "\n".join(lines), as_json)
