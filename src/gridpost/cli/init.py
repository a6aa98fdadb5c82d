"""`gridpost init`: the files of a new network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where the network goes; new or empty.")],
    endpoints: Annotated[
        list[str] | None,
        typer.Option("--endpoint", help="Code of an endpoint behind the broker; repeatable."),
    ] = None,
    direct: Annotated[
        list[str] | None,
        typer.Option("--direct", help="Code of an endpoint that is reached directly; repeatable."),
    ] = None,
    directory: Annotated[
        str, typer.Option("--directory", help="Code of the component-directory.")
    ] = "DIRECTORY",
    broker: Annotated[str, typer.Option("--broker", help="Code of the broker.")] = "BROKER",
    host: Annotated[
        str, typer.Option("--host", help="Name under which the components reach each other.")
    ] = "127.0.0.1",
    first_port: Annotated[
        int, typer.Option("--first-port", help="Ports are counted up from this one.")
    ] = 9400,
    cycle: Annotated[
        str, typer.Option("--cycle", help="How often components ask the directory for news.")
    ] = "2m",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
    ] = False,
) -> None:
    """Write a ready network: root CA, directory, broker and endpoints, one folder each."""
    from gridpost.assembly.clock import SystemClock
    from gridpost.assembly.network import NetworkPlan, Party, ports_from, write_network

    behind, reached = endpoints or [], direct or []
    if not behind and not reached:
        behind = ["ENDPOINT-A", "ENDPOINT-B"]
    plan = NetworkPlan(
        (*(Party(c, c) for c in behind), *(Party(c, c, direct=True) for c in reached)),
        directory,
        broker,
        host,
        ports_from(first_port),
        cycle,
    )
    files = write_network(folder, plan, SystemClock().now())
    if as_json:
        components = {
            placed.code: {"configuration": str(placed.configuration), "ports": dict(placed.ports)}
            for placed in files.components
        }
        typer.echo(json.dumps({"root": str(files.root), "components": components}))
        return
    typer.echo(
        f"{folder} holds {len(files.components)} components. {folder / 'README.md'} says how to start them."
    )
