"""`gridpost node`: set up, run and administer a node of MADES 1.1.

`init` works on files; `run` serves; everything else asks the running node through its operations
listener, so that it takes effect at once and is journalled with a name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gridpost.cli.output import say, show

app = typer.Typer(add_completion=False, no_args_is_help=True, help="A node of MADES 1.1.")

KINDS = ("authentication", "signing", "encryption")

Config = Annotated[Path, typer.Option("--config", help="Configuration file of the node (TOML).")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]
By = Annotated[str, typer.Option("--by", help="Who does it, for the journal.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is journalled.")]
Code = Annotated[str, typer.Argument(help="Component ID of the endpoint.")]
Pem = typer.Option(help="Public key, or certificate of an EXTERNAL CA (PEM).")


@app.command()
def init(
    config: Config,
    certificate: Annotated[
        Path | None,
        typer.Option("--import", help="INTEGRATED CA certificate that the ROOT CA signed (PEM)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the request for the INTEGRATED CA, or import the certificate that answers it."""
    from gridpost.assembly.clock import SystemClock
    from gridpost.assembly.directory_configuration import read_certificates
    from gridpost.assembly.directory_keys import DirectoryKeys
    from gridpost.assembly.node_configuration import read_node_configuration
    from gridpost.core.refusal import Refusal, Rule

    keys = DirectoryKeys(read_node_configuration(config))
    if certificate is None:
        file = keys.request()
        say(
            {"request": str(file)},
            f"{file} goes to the ROOT CA: gridpost ca sign ROOT {file} --out CERTIFICATE\n"
            f"Then: gridpost node init --config {config} --import CERTIFICATE",
            as_json,
        )
        return
    found = read_certificates(certificate)
    if len(found) != 1:
        raise Refusal(Rule.USAGE, f"{certificate} must hold one certificate")
    installed = keys.install_authority(found[0], SystemClock().now())
    say(
        {"installed": installed.certificate_id, "not_after": installed.not_after.isoformat()},
        f"INTEGRATED CA installed, valid until {installed.not_after:%Y-%m-%d}.",
        as_json,
    )


@app.command()
def run(config: Config) -> None:
    """Serve until SIGTERM."""
    import asyncio

    from gridpost.assembly.logs import log_to_stderr
    from gridpost.assembly.node import run_node
    from gridpost.assembly.node_configuration import read_node_configuration

    log_to_stderr(read_node_configuration(config).code)
    asyncio.run(run_node(config))


@app.command()
def register(
    code: Code,
    config: Config,
    organization: Annotated[str, typer.Option(help="Display name of the endpoint's owner.")],
    person: Annotated[str, typer.Option(help="Technical contact.")],
    email: Annotated[str, typer.Option(help="Its e-mail address.")],
    phone: Annotated[str, typer.Option(help="Its telephone number.")],
    keys: Annotated[
        Path | None, typer.Option(help="Make new keys, and write keys and certificates here.")
    ] = None,
    authentication: Annotated[Path | None, typer.Option(help="Public key (PEM).")] = None,
    signing: Annotated[Path | None, Pem] = None,
    encryption: Annotated[Path | None, Pem] = None,
    mversion: Annotated[int, typer.Option(help="MADES version that it complies with.")] = 1,
    by: By = "",
    as_json: Json = False,
) -> None:
    """Register an endpoint; its certificates are issued by the INTEGRATED CA of this node."""
    given = {"authentication": authentication, "signing": signing, "encryption": encryption}
    made, form = _papers(keys, given, KINDS)
    form |= {
        "code": code,
        "organization": organization,
        "person": person,
        "email": email,
        "phone": phone,
        "mversion": mversion,
    }
    result = _ask(config, "/register", form | _by(by))
    _write_papers(config, keys, made, result)
    say(result, f"{code} is registered.", as_json)


@app.command()
def renew(
    code: Code,
    config: Config,
    keys: Annotated[
        Path | None, typer.Option(help="Make new keys, and write keys and certificates here.")
    ] = None,
    kind: Annotated[str, typer.Option(help="With --keys: for this kind only.")] = "",
    signing: Annotated[Path | None, Pem] = None,
    encryption: Annotated[Path | None, Pem] = None,
    authentication: Annotated[Path | None, typer.Option(help="Public key (PEM).")] = None,
    by: By = "",
    as_json: Json = False,
) -> None:
    """Publish further certificates of an endpoint beside the present ones."""
    given = {"authentication": authentication, "signing": signing, "encryption": encryption}
    made, form = _papers(keys, given, (kind,) if kind else KINDS)
    result = _ask(config, "/renew", form | {"code": code} | _by(by))
    _write_papers(config, keys, made, result)
    say(result, f"{code} has new certificates.", as_json)


@app.command()
def revoke(
    code: Code,
    certificate: Annotated[str, typer.Argument(help="Certificate ID, as `components` shows it.")],
    config: Config,
    reason: Reason,
    by: By = "",
    as_json: Json = False,
) -> None:
    """Revoke one certificate of a registered endpoint, for security reasons only."""
    form = {"code": code, "certificate_id": certificate, "reason": reason}
    result = _ask(config, "/revoke", form | _by(by))
    say(result, f"{certificate} of {code} is revoked.", as_json)


@app.command()
def remove(code: Code, config: Config, reason: Reason, by: By = "", as_json: Json = False) -> None:
    """Remove a registered endpoint from the directory."""
    result = _ask(config, "/remove", {"code": code, "reason": reason} | _by(by))
    say(result, f"{code} is removed.", as_json)


@app.command()
def components(config: Config, as_json: Json = False) -> None:
    """List the components of the whole network, as far as this node knows it."""
    rows = _ask(config, "/components", None)
    columns = ["code", "type", "node", "organization", "mversion"]
    show({"components": rows}, columns, rows, as_json)


@app.command()
def nodes(
    config: Config,
    file: Annotated[
        Path | None, typer.Option("--import", help="Import this node-list file (cl. 5.4).")
    ] = None,
    synchronise: Annotated[
        bool, typer.Option("--synchronise", help="Synchronise with all nodes now.")
    ] = False,
    by: By = "",
    as_json: Json = False,
) -> None:
    """List the nodes to synchronise with, and when that last succeeded."""
    if file is not None:
        _ask(config, "/import-nodes", {"file": _read(file)} | _by(by))
    rows = _ask(config, "/synchronise" if synchronise else "/nodes", {})
    columns = ["code", "mversion", "dversion", "last_success", "problem"]
    show({"nodes": rows}, columns, rows, as_json)


@app.command()
def messages(
    config: Config,
    after: Annotated[int, typer.Option(help="Only those behind this number.")] = 0,
    as_json: Json = False,
) -> None:
    """List the messages in the box of the node, oldest first."""
    rows = _ask(config, "/messages", {"after": after})
    columns = ["number", "message_id", "sender", "receiver", "business_type", "state", "size"]
    show({"messages": rows}, columns, rows, as_json)


@app.command()
def archive(
    config: Config,
    older_than: Annotated[str, typer.Option(help="Final for at least this long, e.g. 30d.")] = "0s",
    by: By = "",
    as_json: Json = False,
) -> None:
    """Write messages in a final state into files, and delete what was written."""
    from gridpost.assembly.configuration import duration

    seconds = duration(older_than).total_seconds()
    result = _ask(config, "/archive", {"older_than_seconds": seconds} | _by(by))
    text = f"{result['messages']} messages archived."
    say(result, "\n".join([text, *result["files"]]), as_json)


# ---------------------------------------------------------------- keys and papers


def _papers(
    folder: Path | None, given: dict[str, Path | None], kinds: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keys that were made here, and what the node is asked to certify or to publish."""
    from base64 import b64encode

    from gridpost.assembly.node_papers import read_paper
    from gridpost.stores.keys.rsa_operations import generate
    from gridpost.wire.x509 import public_key_bytes

    made, form = {}, {}
    for kind in kinds:
        file = given.get(kind)
        if file is not None:
            what, der = read_paper(_read(file), str(file))
        elif folder is not None:
            made[kind] = generate()
            what, der = "key", public_key_bytes(made[kind].public_key())
        else:
            continue
        form[kind] = {"is": what, "der": b64encode(der).decode("ascii")}
    return made, form


def _write_papers(
    config: Path, folder: Path | None, made: dict[str, Any], result: dict[str, Any]
) -> None:
    from base64 import b64decode

    from gridpost.assembly.node_papers import write_papers

    if folder is not None:
        issued = {kind: b64decode(text) for kind, text in result["issued"].items()}
        write_papers(config, folder, made, issued)


def _ask(config: Path, path: str, body: object) -> Any:
    import httpx

    from gridpost.assembly.node_configuration import read_node_configuration
    from gridpost.assembly.operations_token import bearer
    from gridpost.core.refusal import Refusal, Rule

    configuration = read_node_configuration(config)
    section = configuration.operations
    # Reading needs no token, so that whoever monitors the service may do it.
    headers = {} if body is None else bearer(configuration.home)
    url = f"http://{section.host}:{section.port}{path}"
    try:
        with httpx.Client(timeout=300, trust_env=False, headers=headers) as client:
            response = client.get(url) if body is None else client.post(url, json=body)
            answer = response.json()
            if response.status_code in (401, 409):
                refused = answer["refused"]
                raise Refusal(Rule[refused["rule"]], refused["message"], refused["id"])
            response.raise_for_status()
            return answer
    except httpx.HTTPError as error:
        raise Refusal(
            Rule.UNREACHABLE, f"the node does not answer at {url}: is it running?", str(error)
        ) from None


def _read(file: Path) -> str:
    from gridpost.core.refusal import Refusal, Rule

    try:
        return file.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(Rule.USAGE, f"{file} cannot be read: {error}") from None


def _by(name: str) -> dict[str, str]:
    from getpass import getuser

    return {"by": name or getuser()}
