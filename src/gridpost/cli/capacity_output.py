"""How the commands of capacity print what they found, and read moments."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

Config = Annotated[Path, typer.Option("--config", help="Configuration file of the service (TOML).")]
Json = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object and nothing else.")
]


def instant(text: str) -> datetime:
    """Seconds may be left out: an instant of a market is a whole minute."""
    import re

    from gridpost.core.instant import Instant

    return Instant.parse(re.sub(r"(T\d\d:\d\d)(?=Z|[+-]|$)", r"\1:00", text)).at


def tell(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(result))
        return
    for name, value in result.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else value
        typer.echo(f"{name.replace('_', ' ')}: {text}")
