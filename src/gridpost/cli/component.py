"""What `gridpost endpoint` and `gridpost broker` share: registering, and asking the one that runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from gridpost.cli.output import say

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
    """A rejection is a refusal of the directory: exit code 1."""
    reason = f": {result['reason']}" if result["reason"] else ""
    text = f"registration {result['registration'] or '(not sent)'} {result['state']}{reason}"
    say(result, text, as_json)
    if result["state"] == "REJECTED":
        raise typer.Exit(1)


def ask(
    listener: Listener,
    component: str,
    path: str,
    method: str = "GET",
    body: object = None,
    *,
    headers: dict[str, str] | None = None,
    seconds: float = 30,
) -> Any:
    """What the running component answers."""
    import httpx

    from gridpost.core.refusal import Refusal, Rule

    url = f"http://{listener.host}:{listener.port}{path}"
    try:
        with httpx.Client(timeout=seconds, trust_env=False) as client:
            response = client.request(method, url, json=body, headers=headers)
            if response.status_code in (httpx.codes.CONFLICT, httpx.codes.UNAUTHORIZED):
                told = response.json()["refused"]
                raise Refusal(Rule[told["rule"]], told["message"], f"id {told['id']} in its log")
            return response.raise_for_status().json()
    except httpx.HTTPError as error:
        raise Refusal(
            Rule.UNREACHABLE,
            f"the {component} does not answer at {url}: is it running?",
            str(error),
        ) from None
