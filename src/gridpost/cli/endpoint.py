"""`gridpost endpoint`: register, run and look at an endpoint.

`register`, `renew` and `certificates` work on the endpoint's own folder, while it does not run;
`connections` and `archive` ask the running endpoint through its operations listener; what operators do to
messages goes through its JSON API, as a user with that right.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gridpost.cli import application as shared
from gridpost.cli import component
from gridpost.cli.output import say, show

if TYPE_CHECKING:
    from gridpost.client import Endpoint, Hold

app = typer.Typer(add_completion=False, no_args_is_help=True, help="An endpoint of IEC 62325-503.")

NEW_PASSWORD = "GRIDPOST_NEW_PASSWORD"

Config = Annotated[
    Path, typer.Option("--config", help="Configuration file of the endpoint (TOML).")
]

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the journal.")]
Kind = Annotated[str, typer.Argument(help="partner, type or channel.")]


@app.command()
def run(config: Config) -> None:
    """Run until SIGTERM; then finish what is under way and stop."""
    import asyncio

    from gridpost.assembly.endpoint import run_endpoint
    from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
    from gridpost.assembly.freed_memory import share_freed_memory
    from gridpost.assembly.logs import log_to_stderr

    share_freed_memory()
    log_to_stderr(read_endpoint_configuration(config).code)
    asyncio.run(run_endpoint(config))


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
    from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
    from gridpost.assembly.enrolling import register_endpoint
    from gridpost.assembly.logs import log_to_stderr

    password = component.bundle_password()
    log_to_stderr(read_endpoint_configuration(config).code)
    component.say_enrolled(register_endpoint(config, bundle, password, wait), as_json)


@app.command()
def renew(config: Config, wait: component.Wait = 0, as_json: component.Json = False) -> None:
    """Ask for new certificates now; a running endpoint does so by itself in time."""
    from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
    from gridpost.assembly.enrolling import renew_endpoint
    from gridpost.assembly.logs import log_to_stderr

    log_to_stderr(read_endpoint_configuration(config).code)
    component.say_enrolled(renew_endpoint(config, wait), as_json)


@app.command()
def certificates(config: Config, as_json: component.Json = False) -> None:
    """Show the endpoint's certificates."""
    from gridpost.assembly.endpoint import certificates_of

    rows = certificates_of(config)
    show({"certificates": rows}, component.CERTIFICATE_COLUMNS, rows, as_json)


@app.command()
def connections(config: Config, as_json: component.Json = False) -> None:
    """Show to whom a running endpoint is connected, and where it listens."""
    from gridpost.assembly.endpoint_configuration import read_endpoint_configuration

    listener = read_endpoint_configuration(config).operations
    rows = component.ask(listener, "endpoint", "/connections")
    columns = ["peer", "connected", "listening", "under_way", "reason"]
    show({"connections": rows}, columns, rows, as_json)


@app.command()
def archive(
    config: Config,
    older_than: Annotated[
        str, typer.Option("--older-than", help="How long they must have been final, e.g. 90d.")
    ],
    as_json: component.Json = False,
) -> None:
    """Write finished messages with their proofs into files, and remove them from the message box.

    It asks the running endpoint, as the user that it runs as.
    """
    from getpass import getuser

    from gridpost.assembly.configuration import duration
    from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
    from gridpost.assembly.operations_token import bearer

    age = duration(older_than)
    configuration = read_endpoint_configuration(config)
    form = {"older_than_seconds": age.total_seconds(), "by": getuser()}
    done = component.ask(
        configuration.operations, "endpoint", "/archive", "POST", form,
        headers=bearer(configuration.home), seconds=3600,
    )  # fmt: skip
    text = f"{done['messages']} messages archived"
    say(done, "\n".join([text, *done["files"]]), as_json)


@app.command()
@shared.connected
def resend(
    endpoint: Endpoint,
    message_id: shared.MessageId,
    reason: Reason = "",
    as_json: shared.Json = False,
) -> None:
    """Send the document of a FAILED message again, as a new message linked to the old one."""
    new = endpoint.resend(message_id, reason)
    say({"messageID": new, "resendOf": message_id}, f"sent again as {new}", as_json)


@app.command()
@shared.connected
def cancel(
    endpoint: Endpoint,
    message_id: shared.MessageId,
    reason: Reason = "",
    as_json: shared.Json = False,
) -> None:
    """Give up an ACCEPTED message that was not transferred yet."""
    endpoint.cancel(message_id, reason)
    say({"messageID": message_id}, f"{message_id} is cancelled", as_json)


@app.command()
@shared.connected
def pause(
    endpoint: Endpoint,
    kind: Kind,
    value: Annotated[str, typer.Argument(help="Code, message-type or pattern, or channel.")],
    reason: Reason = "",
    as_json: shared.Json = False,
) -> None:
    """Pause sending to and handing over from a partner, of a message-type, or by a channel."""
    hold = endpoint.pause(kind, value, reason)
    say(_hold(hold), f"{hold.kind} {hold.value} is paused", as_json)


@app.command()
@shared.connected
def resume(
    endpoint: Endpoint,
    kind: Kind,
    value: Annotated[str, typer.Argument(help="Code, message-type or pattern, or channel.")],
    as_json: shared.Json = False,
) -> None:
    """Go on with what was paused."""
    changed = endpoint.resume(kind, value)
    text = f"{kind} {value} goes on" if changed else f"{kind} {value} was not paused"
    say({"changed": changed}, text, as_json)


@app.command()
@shared.connected
def maintenance(
    endpoint: Endpoint,
    state: Annotated[str, typer.Argument(help="on or off.")],
    reason: Reason = "",
    as_json: shared.Json = False,
) -> None:
    """Refuse new documents on every channel while transfers under way finish; or end that."""
    from gridpost.core.refusal import Refusal, Rule

    if state not in ("on", "off"):
        raise Refusal(Rule.USAGE, f"maintenance is on or off, not '{state}'")
    on = state == "on"
    changed = endpoint.maintenance(on, reason)
    text = f"maintenance is {state}" + ("" if changed else " already")
    say({"on": on, "changed": changed}, text, as_json)


@app.command()
@shared.connected
def holds(
    endpoint: Endpoint,
    as_json: shared.Json = False,
) -> None:
    """Show what is paused, by whom and why."""
    found = [_hold(hold) for hold in endpoint.holds()]
    show({"holds": found}, ["kind", "value", "by", "since", "reason"], found, as_json)


@app.command("held-back")
@shared.connected
def held_back(
    endpoint: Endpoint,
    as_json: shared.Json = False,
) -> None:
    """Show received documents that a check held back."""
    found = [
        {
            "messageID": held.message.message_id,
            "sender": held.message.sender,
            "type": held.message.message_type,
            "reason": held.reason,
        }
        for held in endpoint.held_back()
    ]
    show({"messages": found}, ["messageID", "sender", "type", "reason"], found, as_json)


@app.command()
@shared.connected
def release(
    endpoint: Endpoint,
    message_id: shared.MessageId,
    reason: Reason = "",
    as_json: shared.Json = False,
) -> None:
    """Offer a document that a check held back to the applications after all."""
    endpoint.release(message_id, reason)
    say({"messageID": message_id}, f"{message_id} is released", as_json)


@app.command()
@shared.connected
def drop(
    endpoint: Endpoint,
    message_id: shared.MessageId,
    reason: Reason = "",
    as_json: shared.Json = False,
) -> None:
    """Refuse a document that a check held back; its sender is told FAILED."""
    endpoint.drop(message_id, reason)
    say({"messageID": message_id}, f"{message_id} is dropped", as_json)


@app.command()
def password(as_json: component.Json = False) -> None:
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
