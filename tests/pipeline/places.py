"""File systems that are not the local one: one that is nowhere but in memory, and one that Spark knows.

No file of the first has a path, so that whoever asks the kernel for one fails. The second is a mount
of Hadoop's viewfs; Python reaches it through a file system that only pyarrow knows.
"""

from __future__ import annotations

import os
from pathlib import Path

from pyarrow import fs

from gridpost.pipeline.files import Place

MOUNT = "viewfs://far"


def in_memory() -> Place:
    system = fs._MockFileSystem()
    system.create_dir("somewhere")
    return Place(system, "somewhere/lake", "memory://")


def mounting(folder: Path) -> tuple[tuple[str, str], ...]:
    """What a Spark session must know of the mount."""
    link = "spark.hadoop.fs.viewfs.mounttable.far.link./lakes"
    return ((link, folder.resolve().as_uri()),)


def mounted(folder: Path, name: str) -> Place:
    """What Spark reads as viewfs://far/lakes/NAME."""
    inside = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    return Place(inside, name, f"{MOUNT}/lakes/")


def full_run() -> bool:
    return float(os.environ.get("GRIDPOST_SCALE", "0.1")) >= 1
