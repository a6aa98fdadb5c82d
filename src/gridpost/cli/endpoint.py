"""`gridpost endpoint`: register, run and look at an endpoint.

`register`, `renew` and `certificates` work on the endpoint's own folder, while it does not run;
`connections` asks the running endpoint through its operations listener.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, help="An endpoint of IEC 62325-503.")

BUNDLE_PASSWORD = "GRIDPOST_BUNDLE_PASSWORD"
NEW_PASSWORD = "GRIDPOST_NEW_PASSWORD"

Config = Annotated[
    Path, typer.Option("--config", help="Configuration file of the endpoint (TOML).")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]
Wait = Annotated[
    float, typer.Option("--wait", help="Seconds to wait for the directory's decision.")
]


@app.command()
def run(config: Config) -> None:
    """Run until SIGTERM; then finish what is under way and stop."""
    import asyncio

    from gridpost.assembly.endpoint import run_endpoint
    from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
    from gridpost.assembly.logs import log_to_stderr

    log_to_stderr(read_endpoint_configuration(config).code)
    asyncio.run(run_endpoint(config))


@app.command()
def register(
    bundle: Annotated[Path, typer.Argument(help="Installation bundle of the home directory.")],
    config: Config,
    wait: Wait = 0,
    as_json: Json = False,
) -> None:
    """Register with the home directory; say it again later to learn the decision.

    The password of the bundle comes from the environment, GRIDPOST_BUNDLE_PASSWORD.
    """
    from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
    from gridpost.assembly.enrolling import register_endpoint
    from gridpost.assembly.logs import log_to_stderr
    from gridpost.core.refusal import Refusal, Rule

    password = os.environ.get(BUNDLE_PASSWORD, "")
    if not password:
        raise Refusal(Rule.USAGE, f"no password: set {BUNDLE_PASSWORD}")
    log_to_stderr(read_endpoint_configuration(config).code)
    _enrolled(register_endpoint(config, bundle, password, wait), as_json)


@app.command()
def renew(config: Config, wait: Wait = 0, as_json: Json = False) -> None:
    """Ask for new certificates now; a running endpoint does so by itself in time."""
    from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
    from gridpost.assembly.enrolling import renew_endpoint
    from gridpost.assembly.logs import log_to_stderr

    log_to_stderr(read_endpoint_configuration(config).code)
    _enrolled(renew_endpoint(config, wait), as_json)


@app.command()
def certificates(config: Config, as_json: Json = False) -> None:
    """Show the endpoint's certificates."""
    from gridpost.assembly.endpoint import certificates_of

    rows = certificates_of(config)
    _show({"certificates": rows}, ["kind", "id", "not_before", "not_after", "valid"], rows, as_json)


@app.command()
def connections(config: Config, as_json: Json = False) -> None:
    """Show to whom a running endpoint is connected, and where it listens."""
    import httpx

    from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
    from gridpost.core.refusal import Refusal, Rule

    section = read_endpoint_configuration(config).operations
    url = f"http://{section.host}:{section.port}/connections"
    try:
        with httpx.Client(timeout=30, trust_env=False) as client:
            rows = client.get(url).raise_for_status().json()
    except httpx.HTTPError as error:
        raise Refusal(
            Rule.UNREACHABLE, f"the endpoint does not answer at {url}: is it running?", str(error)
        ) from None
    columns = ["peer", "connected", "listening", "under_way", "reason"]
    _show({"connections": rows}, columns, rows, as_json)


@app.command()
def password(as_json: Json = False) -> None:
    """Make the hash of an application's password for the configuration.

    The password comes from the environment, GRIDPOST_NEW_PASSWORD; without one it is made.
    """
    import secrets

    from gridpost.services.operations.passwords import hash_password

    given = os.environ.get(NEW_PASSWORD, "")
    chosen = given or secrets.token_urlsafe(24)
    result = {"hash": hash_password(chosen)}
    if not given:
        result["password"] = chosen
    shown = "" if given else f"password: {chosen}\n"
    typer.echo(
        json.dumps(result)
        if as_json
        else f'{shown}for [users.NAME]:\npassword = "{result["hash"]}"'
    )


def _enrolled(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    reason = f": {result['reason']}" if result["reason"] else ""
    typer.echo(f"registration {result['registration'] or '(not sent)'} {result['state']}{reason}")


def _show(result: object, columns: list[str], rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*("" if row.get(c) is None else str(row[c]) for c in columns))
    Console(highlight=False, markup=False).print(table)
