"""`gridpost ca`: the offline ROOT CA of a system, used on a machine without a network."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="The offline ROOT CA of a system."
)

PASSPHRASE = "GRIDPOST_CA_PASSPHRASE"

Home = Annotated[Path, typer.Argument(help="Folder of the ROOT CA.", file_okay=False)]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]


@app.command()
def init(
    home: Home,
    name: Annotated[str, typer.Option(help="Name in the certificate.")] = "ROOT CA",
    organization: Annotated[str, typer.Option(help="Organization in the certificate.")] = "",
    years: Annotated[int, typer.Option(min=1, max=50, help="How long it is valid.")] = 20,
    as_json: Json = False,
) -> None:
    """Create the key and the self-signed certificate of a ROOT CA."""
    from gridpost.assembly.clock import SystemClock
    from gridpost.assembly.root_ca import create_root

    file = create_root(
        home,
        name,
        organization,
        timedelta(days=365 * years),
        SystemClock().now(),
        _passphrase(),
    )
    if as_json:
        typer.echo(json.dumps({"root": str(file)}))
    else:
        typer.echo(f"{file} is the certificate that every component trusts.")


@app.command()
def sign(
    home: Home,
    request: Annotated[Path, typer.Argument(help="Certification request.", dir_okay=False)],
    out: Annotated[Path, typer.Option("--out", help="Where the certificate goes (PEM).")],
    days: Annotated[int, typer.Option(min=1, help="How long it is valid.")] = 3650,
    as_json: Json = False,
) -> None:
    """Certify the INTEGRATED CA of a component-directory."""
    from gridpost.assembly.clock import SystemClock
    from gridpost.assembly.root_ca import sign_request
    from gridpost.core.refusal import Refusal, Rule

    try:
        data = request.read_bytes()
    except OSError as error:
        raise Refusal(Rule.USAGE, f"{request} cannot be read: {error.strerror}") from None
    name, certificate = sign_request(
        home, data, timedelta(days=days), SystemClock().now(), _passphrase()
    )
    out.write_bytes(certificate)
    if as_json:
        typer.echo(json.dumps({"name": name, "certificate": str(out)}))
    else:
        typer.echo(f"{out} certifies '{name}'. Compare the name before you hand it over.")


def _passphrase() -> bytes | None:
    """From the environment, so that it stands in no list of processes."""
    text = os.environ.get(PASSPHRASE, "")
    return text.encode() if text else None
