"""The `gridpost` command: which commands there are, and what their exit codes mean.

0 done, 1 refused with the reason on stderr, 2 wrong usage. With `--json` a command prints exactly
one JSON object on stdout, whether it was done or refused.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gridpost import __version__
from gridpost.core.refusal import Refusal

# Command -> the module whose `app` it is. A module is imported only when its command runs or the
# list of commands is shown, so that a quick command stays quick whatever the others need.
COMMANDS = MappingProxyType(
    {
        "backup": "gridpost.cli.backup",
        "bench": "gridpost.cli.bench",
        "broker": "gridpost.cli.broker",
        "bus": "gridpost.cli.bus",
        "ca": "gridpost.cli.ca",
        "capacity": "gridpost.cli.capacity",
        "check-config": "gridpost.cli.check_config",
        "confirm": "gridpost.cli.confirm",
        "console": "gridpost.cli.console",
        "demo": "gridpost.cli.demo",
        "directory": "gridpost.cli.directory",
        "endpoint": "gridpost.cli.endpoint",
        "explain": "gridpost.cli.explain",
        "init": "gridpost.cli.init",
        "journal": "gridpost.cli.journal",
        "node": "gridpost.cli.node",
        "pipeline": "gridpost.cli.pipeline",
        "proof": "gridpost.cli.proof",
        "receive": "gridpost.cli.receive",
        "restore": "gridpost.cli.restore",
        "send": "gridpost.cli.send",
        "status": "gridpost.cli.status",
        "trace": "gridpost.cli.trace",
    }
)


class _LazyCommands(TyperGroup):
    """Finds commands in `COMMANDS` instead of asking every module to register itself."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="gridpost",
    cls=_LazyCommands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gridpost {__version__}")
        raise typer.Exit


@app.callback()
def gridpost(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """The open post office of the electricity market."""


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except Refusal as refusal:
        _render(refusal, as_json="--json" in sys.argv)
        sys.exit(1)


def _render(refusal: Refusal, *, as_json: bool) -> None:
    """The command line's edge: code, message and id, so that the log entry can be found."""
    details = f"\n{refusal.details}" if refusal.details else ""
    typer.echo(f"{refusal.code}: {refusal.message} [{refusal.id}]{details}", err=True)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "refused": {
                        "code": refusal.code,
                        "rule": refusal.rule.name,
                        "message": refusal.message,
                        "details": refusal.details,
                        "id": refusal.id,
                    }
                }
            )
        )
