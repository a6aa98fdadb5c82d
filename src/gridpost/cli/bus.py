"""`gridpost bus`: run the bus of IEC 61968-100, and look after its interfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The bus of IEC 61968-100 messages.",
)


@app.callback()
def _bus() -> None:
    """The bus of IEC 61968-100 messages."""


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", help="Configuration file of the bus (TOML).")],
) -> None:
    """Serve until SIGTERM; several processes with one configuration share the work."""
    import asyncio

    from gridpost.assembly.bus import run_bus
    from gridpost.assembly.bus_configuration import read_bus_configuration
    from gridpost.assembly.logs import log_to_stderr

    log_to_stderr(read_bus_configuration(config).code)
    asyncio.run(run_bus(config))


@app.command()
def wsdl(
    schema: Annotated[
        Path | None,
        typer.Argument(
            help="The noun's XSD, named like the noun: WorkOrders.xsd;"
            " or MeterReadings or EndDeviceControls, of which the bus has its own."
        ),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for the WSDL files.")] = Path("wsdl"),
    generic: Annotated[
        bool, typer.Option("--generic", help="Write the description for any verb and noun.")
    ] = False,
    check: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--check", help="Compare OLD.xsd with NEW.xsd instead."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
    ] = False,
) -> None:
    """Write the web service descriptions of a noun, or check a new version of its schema.

    A Get profile is taken from the file GetNOUN.xsd beside the noun's own.
    """
    import json

    from gridpost.assembly.noun_schemas import read_noun_schemas
    from gridpost.core.refusal import Refusal, Rule
    from gridpost.wire.envelope import schema_change
    from gridpost.wire.envelope import wsdl as descriptions

    if check is not None:
        old, new = check
        verdict = schema_change.compare(_read(old), _read(new))
        if verdict.errors:
            raise Refusal(
                Rule.SCHEMA_CHANGE,
                "; ".join(verdict.errors),
                "\n".join(change.what for change in verdict.changes),
            )
        changes = [change.what for change in verdict.changes]
        if as_json:
            typer.echo(json.dumps({"kind": verdict.kind, "changes": changes}))
        else:
            for line in [f"{verdict.kind} change", *changes]:
                typer.echo(line)
        return
    found: dict[str, bytes] = {}
    if generic:
        found = {
            "Generic.wsdl": descriptions.generic_wsdl().encode(),
            "xsd/Message.xsd": descriptions.message_xsd(),
        }
    elif schema is None:
        raise typer.BadParameter("give the noun's XSD, --generic or --check", param_hint="SCHEMA")
    elif (ours := descriptions.shipped_xsd(str(schema))) is not None and not schema.exists():
        found = descriptions.typed_files(
            str(schema), ours, descriptions.shipped_xsd(f"Get{schema}")
        )
    else:
        read = read_noun_schemas(schema)
        found = descriptions.typed_files(schema.stem, read.schema, read.profile, read.more)
    for name, data in found.items():
        file = out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    names = sorted(found)
    for line in [json.dumps({"folder": str(out), "files": names})] if as_json else names:
        typer.echo(line)


def _read(file: Path) -> bytes:
    from gridpost.core.refusal import Refusal, Rule

    try:
        return file.read_bytes()
    except OSError as error:
        raise Refusal(Rule.USAGE, f"{file} cannot be read: {error.strerror}") from None
