"""What the commands of a business application share: how they reach the endpoint, and how they print."""

from __future__ import annotations

import os
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from gridpost.client import Endpoint

URL, USER, PASSWORD = "GRIDPOST_URL", "GRIDPOST_USER", "GRIDPOST_PASSWORD"
DEFAULT_URL = "http://127.0.0.1:8480"

_Url = Annotated[str, typer.Option("--url", envvar=URL, help="Where the endpoint's JSON API is.")]
_User = Annotated[str, typer.Option("--user", envvar=USER, help="Name of the application.")]
_PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help=f"File with its password; else {PASSWORD}."),
]
_Certificate = Annotated[
    Path | None, typer.Option("--certificate", help="Client certificate (PEM) instead of a user.")
]
_Key = Annotated[Path | None, typer.Option("--key", help="Its private key (PEM).")]
_Ca = Annotated[
    Path | None, typer.Option("--ca", help="CA that certified the endpoint's API (PEM).")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]
SideOption = Annotated[
    str, typer.Option("--side", help="sent (default) or received: which view of the message.")
]
MessageId = Annotated[str, typer.Argument(help="The message ID.")]


_HOW = {
    "url": (_Url, DEFAULT_URL),
    "user": (_User, ""),
    "password_file": (_PasswordFile, None),
    "certificate": (_Certificate, None),
    "key": (_Key, None),
    "ca": (_Ca, None),
}


def connected(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its endpoint as first argument, and the options that say which and as whom.

    They come before the last option of the command, which is `--json`.
    """
    # What the endpoint is of interest to type checkers alone: importing it takes time.
    hints = get_type_hints(command, localns={"Endpoint": object}, include_extras=True)
    _, *own = signature(command).parameters.values()
    parameters = [
        Parameter(p.name, Parameter.KEYWORD_ONLY, default=p.default, annotation=hints[p.name])
        for p in own
    ]
    parameters[-1:-1] = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
        for name, (hint, default) in _HOW.items()
    ]

    def with_endpoint(**values: Any) -> None:
        how = {name: values.pop(name) for name in _HOW}
        with _connect(**how) as endpoint:
            command(endpoint, **values)

    with_endpoint.__name__, with_endpoint.__doc__ = command.__name__, command.__doc__
    with_endpoint.__annotations__ = {p.name: p.annotation for p in parameters}
    with_endpoint.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return with_endpoint


def _connect(
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
