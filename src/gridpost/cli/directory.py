"""`gridpost directory`: set up, run and administer a component-directory.

`init` and `token` work on files; `run` serves; everything else asks the running directory through
its administration API, so that it takes effect at once and is journalled with a name.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode
from pathlib import Path
from typing import Annotated, Any

import typer

from gridpost.cli.output import say, show

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="A component-directory of IEC 62325-503."
)

TOKEN = "GRIDPOST_TOKEN"
BUNDLE_PASSWORD = "GRIDPOST_BUNDLE_PASSWORD"

Config = Annotated[
    Path, typer.Option("--config", help="Configuration file of the directory (TOML).")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]
TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", help=f"File with the administrator's token; else {TOKEN}."),
]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is journalled.")]


@app.command()
def init(
    config: Config,
    certificate: Annotated[
        Path | None,
        typer.Option("--import", help="INTEGRATED CA certificate that the ROOT CA signed (PEM)."),
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Ask for another INTEGRATED CA besides the present one.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the request for the INTEGRATED CA, or import the certificate that answers it."""
    from gridpost.assembly.clock import SystemClock
    from gridpost.assembly.directory_configuration import (
        read_certificates,
        read_directory_configuration,
    )
    from gridpost.assembly.directory_keys import DirectoryKeys
    from gridpost.core.refusal import Refusal, Rule

    keys = DirectoryKeys(read_directory_configuration(config))
    if certificate is not None:
        found = read_certificates(certificate)
        if len(found) != 1:
            raise Refusal(Rule.USAGE, f"{certificate} must hold one certificate")
        installed = keys.install_authority(found[0], SystemClock().now())
        say(
            {"installed": installed.certificate_id, "not_after": installed.not_after.isoformat()},
            f"INTEGRATED CA installed, valid until {installed.not_after:%Y-%m-%d}.",
            as_json,
        )
        return
    if keys.authorities and not renew:
        raise Refusal(
            Rule.USAGE, "there is an INTEGRATED CA already: use --renew to ask for another one"
        )
    file = keys.request()
    say(
        {"request": str(file)},
        f"{file} goes to the ROOT CA: gridpost ca sign ROOT {file} --out CERTIFICATE\n"
        f"Then: gridpost directory init --config {config} --import CERTIFICATE",
        as_json,
    )


@app.command()
def token(
    name: Annotated[str, typer.Argument(help="Name of the administrator, as journalled.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the token to this file (mode 0600).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a token for an administrator, and the line for the configuration."""
    from gridpost.services.operations.administrators import hash_token, new_token

    made = new_token()
    hashed = hash_token(made)
    result = {"name": name, "hash": hashed}
    shown = f"token: {made}"
    if out is None:
        result["token"] = made
    else:
        handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(made + "\n")
        shown = f"token written to {out}"
    say(
        result,
        f'{shown}\nfor the configuration:\n[administration.tokens]\n{json.dumps(name)} = "{hashed}"',
        as_json,
    )


@app.command()
def run(config: Config) -> None:
    """Serve until SIGTERM."""
    import asyncio

    from gridpost.assembly.directory import run_directory
    from gridpost.assembly.directory_configuration import read_directory_configuration
    from gridpost.assembly.logs import log_to_stderr

    log_to_stderr(read_directory_configuration(config).code)
    asyncio.run(run_directory(config))


@app.command()
def registrations(
    config: Config,
    status: Annotated[str, typer.Option("--status", help="PENDING, APPROVED or REJECTED.")] = "",
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List registrations, newest first."""
    query = f"?status={status}" if status else ""
    result = _call(config, token_file, "GET", f"/registrations{query}")
    columns = ["id", "code", "status", "extension", "organization", "submitted_at", "reason"]
    show(result, columns, result["registrations"], as_json)


@app.command()
def approve(
    registration: Annotated[str, typer.Argument(help="Id of the registration.")],
    config: Config,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Approve a registration: its certificates are issued and its entry is published."""
    result = _call(config, token_file, "POST", f"/registrations/{_part(registration)}/approve")
    say(result, f"{result['code']} is registered.", as_json)


@app.command()
def reject(
    registration: Annotated[str, typer.Argument(help="Id of the registration.")],
    config: Config,
    reason: Reason,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Reject a registration; the component is told the reason."""
    path = f"/registrations/{_part(registration)}/reject"
    result = _call(config, token_file, "POST", path, {"reason": reason})
    say(result, f"The registration of {result['code']} is rejected.", as_json)


@app.command()
def invite(
    code: Annotated[str, typer.Argument(help="Code of the component that shall register.")],
    config: Config,
    out: Annotated[Path, typer.Option("--out", help="Where the installation bundle goes.")],
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Make the installation bundle for a new component.

    Its password comes from the environment, GRIDPOST_BUNDLE_PASSWORD; without one it is made
    and printed. Hand file and password over on different ways.
    """
    import secrets

    given = os.environ.get(BUNDLE_PASSWORD, "")
    password = given or secrets.token_urlsafe(18)
    result = _call(config, token_file, "POST", "/invitations", {"code": code, "password": password})
    handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(b64decode(result.pop("bundle")))
    result["file"] = str(out)
    if not given:
        result["password"] = password
    text = f"{out} lets {code} register until {result['expires_at']}."
    say(result, text if given else f"{text}\npassword: {password}", as_json)


@app.command()
def revoke(
    code: Annotated[str, typer.Argument(help="Code of the component.")],
    config: Config,
    reason: Reason,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Revoke a component, for security reasons only: it is out of the system at once."""
    path = f"/components/{_part(code)}/revoke"
    result = _call(config, token_file, "POST", path, {"reason": reason})
    say(result, f"{code} is revoked.", as_json)


@app.command()
def components(
    config: Config,
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """List the components of all subsystems."""
    result = _call(config, token_file, "GET", "/components")
    columns = ["code", "type", "component_directory", "organization", "modified"]
    show(result, columns, result["components"], as_json)


@app.command()
def export(
    config: Config,
    out: Annotated[Path, typer.Option("--out", help="Where the XML document goes.")],
    token_file: TokenFile = None,
    as_json: Json = False,
) -> None:
    """Write the whole content as a `components` document of 503 cl. 7.8.3."""
    data = _request(config, token_file, "GET", "/export")
    out.write_bytes(data)
    say({"file": str(out), "bytes": len(data)}, f"{out} written.", as_json)


def _call(
    config: Path, token_file: Path | None, method: str, path: str, body: object = None
) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(_request(config, token_file, method, path, body))
    return result


def _request(
    config: Path, token_file: Path | None, method: str, path: str, body: object = None
) -> bytes:
    from gridpost.assembly.administration_client import AdministrationClient
    from gridpost.assembly.directory_configuration import read_directory_configuration
    from gridpost.core.refusal import Refusal, Rule

    shown = os.environ.get(TOKEN, "")
    if token_file is not None:
        try:
            shown = token_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            raise Refusal(Rule.USAGE, f"{token_file} cannot be read") from None
    if not shown:
        raise Refusal(Rule.USAGE, f"no token: set {TOKEN} or give --token-file")
    client = AdministrationClient(read_directory_configuration(config).administration, shown)
    return client.request(method, path, body)


def _part(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")
