"""`gridpost restore`: bring a component back from its backup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(add_completion=False)


@app.command()
def restore(
    archive: Annotated[Path, typer.Argument(help="A file that `gridpost backup` wrote.")],
    config: Annotated[
        Path,
        typer.Option(
            "--config", help="Configuration of the component; where it is missing, the saved one."
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
    ] = False,
) -> None:
    """Put store and keys into the component's empty home folder, and say what may be missing."""
    from gridpost.assembly.after_restore import missing_of
    from gridpost.assembly.backup import restore as bring_back
    from gridpost.assembly.clock import SystemClock
    from gridpost.cli.progress import showing

    with showing("restoring", quiet=as_json) as progress:
        done = bring_back(archive, config, SystemClock().now(), progress)
    result = {
        "component": done.component,
        "code": done.code,
        "taken_at": done.taken_at.isoformat(),
        "files": done.files,
        "bytes": done.bytes,
    }
    text = (
        f"The {done.component} {done.code} is back as of {done.taken_at:%Y-%m-%d %H:%M:%S} UTC.\n"
        f"Between then and now: {missing_of(done.component)}."
    )
    typer.echo(json.dumps(result) if as_json else text)
