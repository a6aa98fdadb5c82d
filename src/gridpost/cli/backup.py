"""`gridpost backup`: a component's store, keys and configuration in one file, while it runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def backup(
    archive: Annotated[Path, typer.Argument(help="The backup file; it must not exist.")],
    config: Annotated[Path, typer.Option("--config", help="Configuration of the component.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
    ] = False,
) -> None:
    """Save a component, whether it runs or not."""
    from gridpost.assembly.backup import back_up
    from gridpost.assembly.clock import SystemClock
    from gridpost.cli.progress import showing

    with showing("saving", quiet=as_json) as progress:
        done = back_up(config, archive, SystemClock().now(), progress)
    result = {
        "archive": str(archive),
        "component": done.component,
        "code": done.code,
        "taken_at": done.taken_at.isoformat(),
        "files": done.files,
        "bytes": done.bytes,
        "journal_sequence": done.sequence,
    }
    text = f"{archive} holds the {done.component} {done.code}: {done.files} files, {done.bytes} bytes.\n"
    text += "It holds private keys: keep it where only administrators can read it."
    typer.echo(json.dumps(result) if as_json else text)
