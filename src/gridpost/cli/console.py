"""`gridpost console`: the people who may use the console of a component.

They stand in the component's configuration file, with a scrypt hash in place of the password. A
running component takes a change over by itself.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(add_completion=False, no_args_is_help=True, help="The console of a component.")
user = typer.Typer(add_completion=False, no_args_is_help=True, help="Who may use the console.")
app.add_typer(user, name="user")

NEW_PASSWORD = "GRIDPOST_NEW_PASSWORD"

Name = Annotated[str, typer.Argument(help="The name that the person signs in with.")]
Config = Annotated[
    Path, typer.Option("--config", help="Configuration file of the component (TOML).")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]


@user.command()
def add(
    name: Name,
    config: Config,
    role: Annotated[
        str, typer.Option("--role", help="viewer, operator or administrator.")
    ] = "viewer",
    as_json: Json = False,
) -> None:
    """Let a person in. The password comes from GRIDPOST_NEW_PASSWORD; without one it is made."""
    from gridpost.assembly.console_users import add_user

    result = add_user(config, name, role, os.environ.get(NEW_PASSWORD, ""))
    _say(result, f"{name} may use the console as {role}.", as_json)


@user.command()
def password(name: Name, config: Config, as_json: Json = False) -> None:
    """Give a person another password, from GRIDPOST_NEW_PASSWORD or made; open sessions end."""
    from gridpost.assembly.console_users import change_password

    result = change_password(config, name, os.environ.get(NEW_PASSWORD, ""))
    _say(result, f"{name} has another password.", as_json)


@user.command()
def remove(name: Name, config: Config, as_json: Json = False) -> None:
    """Let a person in no longer; open sessions end."""
    from gridpost.assembly.console_users import remove_user

    remove_user(config, name)
    _say({"user": name}, f"{name} may no longer use the console.", as_json)


@user.command(name="list")
def list_users(config: Config, as_json: Json = False) -> None:
    """Show who may use the console."""
    from gridpost.assembly.console_users import users_of

    found = users_of(config)
    if as_json:
        typer.echo(json.dumps({"users": found}))
        return
    for one in found:
        typer.echo(f"{one['user']}  {one['role']}")


def _say(result: dict[str, Any], text: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    typer.echo(text)
    if "password" in result:
        typer.echo(f"password: {result['password']}")
