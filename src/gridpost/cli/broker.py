"""`gridpost broker`: register, run and look at a broker.

`register`, `renew` and `certificates` work on the broker's own folder, while it does not run;
`queues`, `connections` and `release` ask the running broker through its operations listener.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from gridpost.cli import component
from gridpost.cli.output import show

app = typer.Typer(no_args_is_help=True, add_completion=False, help="A broker of IEC 62325-503.")

Config = Annotated[Path, typer.Option("--config", help="Configuration file of the broker (TOML).")]


@app.command()
def run(config: Config) -> None:
    """Serve until SIGTERM; then finish what is under way and stop."""
    import asyncio

    from gridpost.assembly.broker import run_broker
    from gridpost.assembly.broker_configuration import read_broker_configuration
    from gridpost.assembly.logs import log_to_stderr

    log_to_stderr(read_broker_configuration(config).code)
    asyncio.run(run_broker(config))


@app.command()
def register(
    bundle: component.Bundle,
    config: Config,
    wait: component.Wait = 0,
    as_json: component.Json = False,
) -> None:
    """Register with the home directory; say it again later to learn the decision.

    The password of the bundle comes from the environment, GRIDPOST_BUNDLE_PASSWORD.
    """
    from gridpost.assembly.broker_configuration import read_broker_configuration
    from gridpost.assembly.enrolling import register_broker
    from gridpost.assembly.logs import log_to_stderr

    password = component.bundle_password()
    log_to_stderr(read_broker_configuration(config).code)
    component.say_enrolled(register_broker(config, bundle, password, wait), as_json)


@app.command()
def renew(config: Config, wait: component.Wait = 0, as_json: component.Json = False) -> None:
    """Ask for new certificates now; a running broker does so by itself in time."""
    from gridpost.assembly.broker_configuration import read_broker_configuration
    from gridpost.assembly.enrolling import renew_broker
    from gridpost.assembly.logs import log_to_stderr

    log_to_stderr(read_broker_configuration(config).code)
    component.say_enrolled(renew_broker(config, wait), as_json)


@app.command()
def certificates(config: Config, as_json: component.Json = False) -> None:
    """Show the broker's certificates."""
    from gridpost.assembly.broker_configuration import read_broker_configuration
    from gridpost.stores.keys.files import FileKeyring

    configuration = read_broker_configuration(config)
    ring = FileKeyring(configuration.home / "keys", configuration.passphrase())
    now = datetime.now(UTC)
    rows = [
        {
            "kind": c.kind.value,
            "id": c.certificate_id,
            "not_before": c.not_before.isoformat(),
            "not_after": c.not_after.isoformat(),
            "valid": c.valid_at(now),
        }
        for c in ring.certificates()
    ]
    show({"certificates": rows}, component.CERTIFICATE_COLUMNS, rows, as_json)


@app.command()
def queues(config: Config, as_json: component.Json = False) -> None:
    """Show the queues of a running broker."""
    rows = _ask(config, "GET", "/queues")
    columns = [
        "queue",
        "messages",
        "octets",
        "under_way",
        "held",
        "producers",
        "consumers",
        "oldest",
    ]
    show({"queues": rows}, columns, rows, as_json)


@app.command()
def connections(config: Config, as_json: component.Json = False) -> None:
    """Show who is connected to a running broker."""
    rows = _ask(config, "GET", "/connections")
    columns = [
        "component",
        "address",
        "seconds",
        "links",
        "octets_in",
        "octets_out",
        "undecided_octets",
        "until",
    ]
    show({"connections": rows}, columns, rows, as_json)


@app.command()
def release(
    queue: Annotated[str, typer.Argument(help="Code of the queue.")],
    config: Config,
    as_json: component.Json = False,
) -> None:
    """Deliver again what consumers of a queue had rejected."""
    result = _ask(config, "POST", "/queues/release", {"queue": queue})
    text = json.dumps(result) if as_json else f"{result['released']} messages are back in {queue}."
    typer.echo(text)


@app.command("remove-queue")
def remove_queue(
    queue: Annotated[str, typer.Argument(help="Code of the queue.")],
    config: Config,
    as_json: component.Json = False,
) -> None:
    """Remove an empty queue now: its links are ended, and on all edges nobody may attach meanwhile."""
    import getpass

    result = _ask(config, "POST", "/queues/remove", {"queue": queue, "by": getpass.getuser()})
    typer.echo(json.dumps(result) if as_json else f"the queue {result['removed']} is gone.")


@app.command()
def join(
    home: Annotated[Path, typer.Argument(help="Folder of an edge that is registered, or a copy.")],
    config: Config,
    as_json: component.Json = False,
) -> None:
    """Make a new folder another edge of the same broker: same code and keys, a journal of its own."""
    from gridpost.assembly.edges import join as join_edge

    result = join_edge(config, home)
    typer.echo(json.dumps(result) if as_json else f"an edge of {result['code']} is ready to run.")


def _ask(config: Path, method: str, path: str, body: object = None) -> Any:
    from gridpost.assembly.broker_configuration import read_broker_configuration

    listener = read_broker_configuration(config).operations
    return component.ask(listener, "broker", path, method, body)
