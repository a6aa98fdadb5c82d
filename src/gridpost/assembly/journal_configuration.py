"""Configuration keys of the exporter that a component runs beside itself, the same for all components."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gridpost.assembly.configuration import Period


class ExportSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    landing: str = ""
    """Where segments of the journal go, a folder or an address; empty: no exporter is started."""
    export_every: Period = timedelta(seconds=10)
    """At most one segment in this time."""
    export_rows: Annotated[int, Field(ge=1)] = 250_000
    """The most that one segment holds."""


def landing_of(file: Path, landing: str) -> str:
    """An address as it is; a relative path counts from the folder of the configuration file."""
    return landing if "://" in landing else str(file.resolve().parent / landing)
