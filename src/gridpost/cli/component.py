"""What `gridpost endpoint` and `gridpost broker` share: registering, and asking the one that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

BUNDLE_PASSWORD = "GRIDPOST_BUNDLE_PASSWORD"

Bundle = Annotated[Path, typer.Argument(help="Installation bundle of the home directory.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]
Wait = Annotated[
    float, typer.Option("--wait", help="Seconds to wait for the directory's decision.")
]
CERTIFICATE_COLUMNS = ["kind", "id", "not_before", "not_after", "valid"]


class Listener(Protocol):
    """Where the operations of a component are."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


def bundle_password() -> str:
    from gridpost.core.refusal import Refusal, Rule

    password = os.environ.get(BUNDLE_PASSWORD, "")
    if not password:
        raise Refusal(Rule.USAGE, f"no password: set {BUNDLE_PASSWORD}")
    return password


def say_enrolled(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    reason = f": {result['reason']}" if result["reason"] else ""
    typer.echo(f"registration {result['registration'] or '(not sent)'} {result['state']}{reason}")


def ask(
    listener: Listener, component: str, path: str, method: str = "GET", body: object = None
) -> Any:
    """What the running component answers."""
    import httpx

    from gridpost.core.refusal import Refusal, Rule

    url = f"http://{listener.host}:{listener.port}{path}"
    try:
        with httpx.Client(timeout=30, trust_env=False) as client:
            response = client.request(method, url, json=body)
            if response.status_code == httpx.codes.CONFLICT:
                told = response.json()["refused"]
                raise Refusal(Rule[told["rule"]], told["message"], f"id {told['id']} in its log")
            return response.raise_for_status().json()
    except httpx.HTTPError as error:
        raise Refusal(
            Rule.UNREACHABLE,
            f"the {component} does not answer at {url}: is it running?",
            str(error),
        ) from None


def show(result: object, columns: list[str], rows: list[dict[str, Any]], as_json: bool) -> None:
    """The result as it is, or its rows as a table."""
    if as_json:
        typer.echo(json.dumps(result))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns)
    for row in rows:
        table.add_row(*("" if row.get(c) is None else str(row[c]) for c in columns))
    Console(highlight=False, markup=False).print(table)
