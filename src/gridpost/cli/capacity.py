"""`gridpost capacity`: run the capacity service, look after its users, and be a client of it.

Commands of operators stand in `capacity_operators`;
`login`, `allocate`, `atc`, `allocations` and `watch` are a participant, over RabbitMQ.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gridpost.cli import capacity_operators
from gridpost.cli.capacity_output import Config, Json, instant, tell
from gridpost.cli.output import show

if TYPE_CHECKING:
    from gridpost.capacity import CapacityClient

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The Capacity Management Module and its client.",
)

app.add_typer(capacity_operators.app)

PACKAGE_PASSPHRASE = "GRIDPOST_PACKAGE_PASSPHRASE"

Account = Annotated[Path, typer.Option("--account", help="The client.toml of an account package.")]


@app.command()
def run(config: Config) -> None:
    """Serve until SIGTERM; a second service on the same ledger waits as a standby."""
    import asyncio

    from gridpost.assembly.capacity import run_capacity
    from gridpost.assembly.capacity_configuration import read_capacity_configuration
    from gridpost.assembly.logs import log_to_stderr

    log_to_stderr(read_capacity_configuration(config).code)
    asyncio.run(run_capacity(config))


@app.command()
def users(
    config: Config,
    apply: Annotated[
        bool, typer.Option("--apply", help="Bring RabbitMQ's accounts and permissions up to date.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option("--export", help="Write a definitions file instead.")
    ] = None,
    package: Annotated[
        str, typer.Option("--package", help="Make the account package of this user.")
    ] = "",
    server: Annotated[
        str, typer.Option("--server", help="Make RabbitMQ's certificate, for these host names.")
    ] = "",
    disable: Annotated[str, typer.Option("--disable", help="Shut this user out of RabbitMQ.")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for --package and --server.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the users of the interface; with an option, make them real at RabbitMQ.

    The passphrase of a package comes from the environment, GRIDPOST_PACKAGE_PASSPHRASE.
    """
    from gridpost.assembly import capacity_users
    from gridpost.assembly.capacity_configuration import read_capacity_configuration
    from gridpost.core.refusal import Refusal, Rule

    configuration = read_capacity_configuration(config)
    now = datetime.now(UTC)
    if package or server:
        if out is None:
            raise Refusal(Rule.USAGE, "say with --out where the files go")
        if package:
            passphrase = os.environ.get(PACKAGE_PASSPHRASE, "")
            if not passphrase:
                raise Refusal(Rule.USAGE, f"no passphrase: set {PACKAGE_PASSPHRASE}")
            made = capacity_users.make_package(configuration, package, out, passphrase, now)
        else:
            names = tuple(name.strip() for name in server.split(","))
            made = capacity_users.make_server_certificate(configuration, names, out, now)
        tell({"folder": str(made.folder), "files": made.files}, as_json)
        return
    if export is not None:
        export.write_text(json.dumps(capacity_users.definitions(configuration), indent=2) + "\n")
        tell({"definitions": str(export)}, as_json)
        return
    if disable:
        capacity_users.disable(configuration, disable)
        tell({"disabled": disable}, as_json)
        return
    if apply:
        tell(capacity_users.apply(configuration), as_json)
        return
    rows = [
        {
            "user": user.name,
            "roles": ", ".join(sorted(user.roles)),
            "balancing_groups": ", ".join(user.balancing_groups),
            "borders": ", ".join(sorted(user.borders)),
        }
        for user in configuration.users
    ]
    show({"users": rows}, ["user", "roles", "balancing_groups", "borders"], rows, as_json)


@app.command()
def login(account: Account, as_json: Json = False) -> None:
    """Log in and wait for a heartbeat: does the account work, and does the service live?"""
    from gridpost.capacity import Heartbeat

    with _client(account) as client:
        for event in client.events(timedelta(seconds=30)):
            if isinstance(event, Heartbeat):
                milliseconds = round(event.latency / timedelta(milliseconds=1), 1)
                tell({"logged_in": True, "heartbeat_latency_ms": milliseconds}, as_json)
                return
        tell({"logged_in": True, "heartbeat_latency_ms": None}, as_json)


@app.command()
def allocate(
    account: Account,
    out_area: Annotated[str, typer.Option("--out-area", help="EIC of the area it leaves.")],
    in_area: Annotated[str, typer.Option("--in-area", help="EIC of the area it enters.")],
    start: Annotated[
        list[str],
        typer.Option("--start", help="Start of a period, like 2026-03-01T12:00Z; repeat."),
    ],
    quantity: Annotated[int, typer.Option("--quantity", help="kW in each period.")],
    minutes: Annotated[int, typer.Option("--minutes", help="Length of a period.")] = 60,
    kind: Annotated[str, typer.Option("--type", help="ACE, AON or IOC.")] = "AON",
    group: Annotated[
        str, typer.Option("--balancing-group", help="EIC; else the user's default group.")
    ] = "",
    correlation_id: Annotated[
        str, typer.Option("--correlation-id", help="Of an earlier request, to learn its outcome.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Ask for capacity. Exit code 1 when nothing was allocated or the outcome is unknown."""
    from gridpost.capacity import AllocationType, Wanted
    from gridpost.core.refusal import Refusal, Rule

    try:
        chosen = AllocationType(kind)
    except ValueError:
        raise Refusal(Rule.USAGE, f"--type is ACE, AON or IOC, not {kind}") from None
    length = timedelta(minutes=minutes)
    periods = [instant(text) for text in start]
    wanted = [
        Wanted(out_area, in_area, begin, begin + length, quantity, group) for begin in periods
    ]
    with _client(account) as client:
        result = client.allocate(wanted, chosen, correlation_id)
        if not result.known:
            raise Refusal(
                Rule.OUTCOME_UNKNOWN,
                result.reason,
                f"ask again with --correlation-id {result.correlation_id}",
            )
    rows = [
        {
            "client_id": item.client_id,
            "success": item.success,
            "allocation_id": item.allocation_id,
            "confirmed_kw": item.confirmed,
            "message": item.message,
        }
        for item in result.items
    ]
    outcome = {
        "correlation_id": result.correlation_id,
        "repeated": result.repeated,
        "items": rows,
    }
    columns = ["client_id", "success", "allocation_id", "confirmed_kw", "message"]
    show(outcome, columns, rows, as_json)
    if not any(item.success for item in result.items):
        raise typer.Exit(1)


@app.command()
def atc(
    account: Account,
    area1: Annotated[str, typer.Option("--area1", help="EIC of one area.")],
    area2: Annotated[str, typer.Option("--area2", help="EIC of the other area.")],
    date: Annotated[
        str, typer.Option("--date", help="An instant of the delivery day; else now.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show the available capacity of an interconnector, both ways."""
    with _client(account) as client:
        lists = client.atc(instant(date) if date else datetime.now(UTC), area1, area2)
    rows = [
        {
            "border": values.border,
            "out_area": values.out_area,
            "in_area": values.in_area,
            "period_start": item.period_start.isoformat(),
            "period_end": item.period_end.isoformat(),
            "mw": item.quantity / 1000,
            "kw": item.quantity,
        }
        for values in lists
        for item in values.items
    ]
    columns = ["border", "out_area", "in_area", "period_start", "period_end", "mw"]
    show({"atc": rows}, columns, rows, as_json)


@app.command()
def allocations(
    account: Account,
    group: Annotated[str, typer.Option("--balancing-group", help="EIC of an own group.")],
    area1: Annotated[str, typer.Option("--area1", help="EIC of one area.")],
    area2: Annotated[str, typer.Option("--area2", help="EIC of the other area.")],
    start: Annotated[str, typer.Option("--from", help="First instant of delivery.")],
    end: Annotated[str, typer.Option("--to", help="Instant at which the interval ends.")],
    as_json: Json = False,
) -> None:
    """Show the allocations of a balancing group on an interconnector."""
    with _client(account) as client:
        lists = client.allocations(group, instant(start), instant(end), area1, area2)
    rows = [
        {
            "allocation_id": item.allocation_id,
            "activity": item.activity_type,
            "out_area": values.out_area,
            "in_area": values.in_area,
            "period_start": item.period_start.isoformat(),
            "period_end": item.period_end.isoformat(),
            "kw": item.quantity,
            "time": item.time.isoformat(),
        }
        for values in lists
        for item in values.items
    ]
    columns = [
        "allocation_id", "activity", "out_area", "in_area", "period_start", "period_end", "kw",
        "time",
    ]  # fmt: skip
    show({"allocations": rows}, columns, rows, as_json)


@app.command()
def watch(
    account: Account,
    arguments: Annotated[
        str, typer.Option("--filter", help="Login arguments, like X_Border:DE-FR|AT-DE.")
    ] = "",
    count: Annotated[int, typer.Option("--count", help="End after so many events.")] = 0,
    seconds: Annotated[
        float, typer.Option("--seconds", help="End when nothing came for so long.")
    ] = 0,
) -> None:
    """Follow broadcasts, one JSON object a line, until interrupted."""
    with _client(account, arguments) as client:
        timeout = timedelta(seconds=seconds) if seconds else None
        for number, event in enumerate(client.events(timeout), start=1):
            typer.echo(json.dumps({"event": type(event).__name__, **_plain(event)}))
            if number == count:
                return


def _client(account: Path, arguments: str = "") -> CapacityClient:
    from dataclasses import replace

    from gridpost.capacity import CapacityClient, read_client_settings

    settings = read_client_settings(account)
    if arguments:
        settings = replace(settings, arguments=arguments)
    return CapacityClient(settings)


def _plain(value: Any) -> Any:
    from dataclasses import fields, is_dataclass

    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value
