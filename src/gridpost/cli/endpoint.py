"""`gridpost endpoint`: register, run and look at an endpoint.

`register`, `renew` and `certificates` work on the endpoint's own folder, while it does not run;
`connections` asks the running endpoint through its operations listener; what operators do to messages
goes through its JSON API, as a user with that right.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gridpost.cli import application as shared

if TYPE_CHECKING:
    from gridpost.client import Hold

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

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the journal.")]
Kind = Annotated[str, typer.Argument(help="partner, type or channel.")]


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
def resend(
    message_id: shared.MessageId,
    reason: Reason = "",
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Send the document of a FAILED message again, as a new message linked to the old one."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        new = endpoint.resend(message_id, reason)
    shared.say({"messageID": new, "resendOf": message_id}, f"sent again as {new}", as_json)


@app.command()
def cancel(
    message_id: shared.MessageId,
    reason: Reason = "",
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Give up an ACCEPTED message that was not transferred yet."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        endpoint.cancel(message_id, reason)
    shared.say({"messageID": message_id}, f"{message_id} is cancelled", as_json)


@app.command()
def pause(
    kind: Kind,
    value: Annotated[str, typer.Argument(help="Code, message-type or pattern, or channel.")],
    reason: Reason = "",
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Pause sending to and handing over from a partner, of a message-type, or by a channel."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        hold = endpoint.pause(kind, value, reason)
    shared.say(_hold(hold), f"{hold.kind} {hold.value} is paused", as_json)


@app.command()
def resume(
    kind: Kind,
    value: Annotated[str, typer.Argument(help="Code, message-type or pattern, or channel.")],
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Go on with what was paused."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        changed = endpoint.resume(kind, value)
    text = f"{kind} {value} goes on" if changed else f"{kind} {value} was not paused"
    shared.say({"changed": changed}, text, as_json)


@app.command()
def maintenance(
    state: Annotated[str, typer.Argument(help="on or off.")],
    reason: Reason = "",
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Refuse new documents on every channel while transfers under way finish; or end that."""
    from gridpost.core.refusal import Refusal, Rule

    if state not in ("on", "off"):
        raise Refusal(Rule.USAGE, f"maintenance is on or off, not '{state}'")
    on = state == "on"
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        changed = endpoint.maintenance(on, reason)
    text = f"maintenance is {state}" + ("" if changed else " already")
    shared.say({"on": on, "changed": changed}, text, as_json)


@app.command()
def holds(
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Show what is paused, by whom and why."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        found = [_hold(hold) for hold in endpoint.holds()]
    _show({"holds": found}, ["kind", "value", "by", "since", "reason"], found, as_json)


@app.command("held-back")
def held_back(
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Show received documents that a check held back."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        found = [
            {
                "messageID": held.message.message_id,
                "sender": held.message.sender,
                "type": held.message.message_type,
                "reason": held.reason,
            }
            for held in endpoint.held_back()
        ]
    _show({"messages": found}, ["messageID", "sender", "type", "reason"], found, as_json)


@app.command()
def release(
    message_id: shared.MessageId,
    reason: Reason = "",
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Offer a document that a check held back to the applications after all."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        endpoint.release(message_id, reason)
    shared.say({"messageID": message_id}, f"{message_id} is released", as_json)


@app.command()
def drop(
    message_id: shared.MessageId,
    reason: Reason = "",
    url: shared.Url = shared.DEFAULT_URL,
    user: shared.User = "",
    password_file: shared.PasswordFile = None,
    certificate: shared.Certificate = None,
    key: shared.Key = None,
    ca: shared.Ca = None,
    as_json: shared.Json = False,
) -> None:
    """Refuse a document that a check held back; its sender is told FAILED."""
    with shared.connect(url, user, password_file, certificate, key, ca) as endpoint:
        endpoint.drop(message_id, reason)
    shared.say({"messageID": message_id}, f"{message_id} is dropped", as_json)


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


def _hold(hold: Hold) -> dict[str, Any]:
    return {
        "kind": hold.kind,
        "value": hold.value,
        "by": hold.by,
        "since": hold.since.isoformat(),
        "reason": hold.reason,
    }


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
