"""What the commands of a business application share: how they reach the endpoint, and how they print."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gridpost.client import Endpoint

URL, USER, PASSWORD = "GRIDPOST_URL", "GRIDPOST_USER", "GRIDPOST_PASSWORD"
DEFAULT_URL = "http://127.0.0.1:8480"

Url = Annotated[str, typer.Option("--url", envvar=URL, help="Where the endpoint's JSON API is.")]
User = Annotated[str, typer.Option("--user", envvar=USER, help="Name of the application.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help=f"File with its password; else {PASSWORD}."),
]
Certificate = Annotated[
    Path | None, typer.Option("--certificate", help="Client certificate (PEM) instead of a user.")
]
Key = Annotated[Path | None, typer.Option("--key", help="Its private key (PEM).")]
Ca = Annotated[
    Path | None, typer.Option("--ca", help="CA that certified the endpoint's API (PEM).")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]
SideOption = Annotated[
    str, typer.Option("--side", help="sent (default) or received: which view of the message.")
]
MessageId = Annotated[str, typer.Argument(help="The message ID.")]


def connect(
    url: str,
    user: str,
    password_file: Path | None,
    certificate: Path | None,
    key: Path | None,
    ca: Path | None,
) -> Endpoint:
    from gridpost.client import Endpoint
    from gridpost.core.refusal import Refusal, Rule

    password = os.environ.get(PASSWORD, "")
    if password_file is not None:
        try:
            password = password_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise Refusal(Rule.USAGE, f"{password_file} cannot be read") from None
    try:
        return Endpoint(url, user=user, password=password, certificate=certificate, key=key, ca=ca)
    except OSError as error:
        raise Refusal(Rule.USAGE, f"the certificates cannot be used: {error}") from None


def say(result: dict[str, Any], text: str, as_json: bool) -> None:
    typer.echo(json.dumps(result) if as_json else text)
