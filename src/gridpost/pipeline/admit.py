"""Which segments come in: complete, unchanged, new; everything else goes aside with its reason.

A segment without a manifest is not finished and stays where it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import compute, parquet

from gridpost.core.segment import Manifest, SegmentName
from gridpost.pipeline.lake import Lake, sync_folder, write_atomically

_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Admission:
    """What one look at the landing folders brought."""

    admitted: tuple[SegmentName, ...]
    quarantined: tuple[tuple[str, str], ...]
    """File name and reason."""
    octets: int


def admit(lake: Lake, landings: tuple[Path, ...], now: datetime) -> Admission:
    """Check and take every finished segment of these folders."""
    admitted: list[SegmentName] = []
    aside: list[tuple[str, str]] = []
    octets = 0
    day = lake.admitted / now.astimezone(UTC).date().isoformat()
    known = {file.name for file in lake.admitted.rglob("segment.*.parquet")}
    for landing in landings:
        for manifest_file in sorted(landing.glob("segment.*.json")):
            reason, manifest = _examine(lake, landing, manifest_file, known)
            if reason or manifest is None:
                for file in _files(landing, manifest_file):
                    _quarantine(lake, file, reason, now)
                aside.append((manifest_file.stem, reason))
                continue
            day.mkdir(parents=True, exist_ok=True)
            file = landing / manifest.name.file
            _move(manifest_file, day / manifest_file.name)
            # Last: from here on the stream sees it. Its age counts from now, not from its export.
            os.utime(file)
            _move(file, day / file.name)
            known.add(file.name)
            admitted.append(manifest.name)
            octets += manifest.octets
        for file in sorted(landing.glob("segment.*.parquet")):
            # A crash between the two moves above leaves a segment whose manifest went ahead.
            for ahead in lake.admitted.glob(f"*/{file.stem}.json"):
                os.utime(file)
                _move(file, ahead.parent / file.name)
                name = SegmentName.parse(file.name)
                if name is not None:
                    admitted.append(name)
                break
    return Admission(tuple(admitted), tuple(aside), octets)


def _examine(lake: Lake, landing: Path, file: Path, known: set[str]) -> tuple[str, Manifest | None]:
    name = SegmentName.parse(file.name)
    if name is None:
        return "the name is not that of a segment", None
    try:
        manifest = Manifest.decode(file.read_bytes())
    except ValueError as error:
        return str(error), None
    segment = landing / name.file
    if manifest.name != name:
        return f"the manifest is that of {manifest.name}", None
    if not segment.is_file():
        return "the manifest has no segment", None
    if name.file in known or any(lake.archive.glob(f"*/{name.file}")):
        return "a segment of this name was admitted already", None
    if segment.stat().st_size != manifest.octets:
        return f"{segment.stat().st_size} octets instead of {manifest.octets}: torn", None
    if _sha256(segment) != manifest.sha256:
        return "the SHA-256 is not that of the manifest", None
    return _rows(segment, manifest), manifest


def _rows(segment: Path, manifest: Manifest) -> str:
    """Exactly the rows that the name says: bronze tells repeats apart by that."""
    name = manifest.name
    try:
        metadata = parquet.read_metadata(segment)
        if metadata.num_rows != manifest.rows or manifest.rows != name.rows:
            return f"{metadata.num_rows} rows instead of {name.rows}"
        rows = parquet.read_table(segment, columns=["component", "instance", "sequence"])
    except (pa.ArrowException, KeyError, OSError) as error:
        return f"not a segment: {error}"
    if not rows["sequence"].combine_chunks().equals(pa.array(range(name.first, name.last + 1))):
        return "the rows are not those that the name says"
    for column, expected in (("component", name.component), ("instance", name.instance)):
        if compute.unique(rows[column]).to_pylist() != [expected]:
            return f"the rows are not all of {expected}"
    return ""


def _files(landing: Path, manifest: Path) -> Iterator[Path]:
    yield manifest
    segment = landing / f"{manifest.stem}.parquet"
    if segment.is_file():
        yield segment


def _quarantine(lake: Lake, file: Path, reason: str, now: datetime) -> None:
    target = lake.quarantine / file.name
    number = 0
    while target.exists():
        number += 1
        target = lake.quarantine / f"{file.stem}.{number}{file.suffix}"
    _move(file, target)
    note = {"file": target.name, "reason": reason, "at": now.isoformat()}
    write_atomically(lake.quarantine / f"{target.name}.reason", json.dumps(note).encode())


def archive(lake: Lake, committed: set[str]) -> int:
    """Segments that bronze holds leave the folder that the stream lists."""
    moved = 0
    for file in sorted(lake.admitted.glob("*/segment.*.parquet")):
        if file.name in committed:
            target = lake.archive / file.parent.name
            target.mkdir(parents=True, exist_ok=True)
            manifest = file.with_suffix(".json")
            if manifest.is_file():
                _move(manifest, target / manifest.name)
            _move(file, target / file.name)
            moved += 1
    for folder in lake.admitted.iterdir():
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    return moved


def refresh(lake: Lake) -> int:
    """What waits in the admitted folder is new again: the stream forgets files above an age."""
    files = list(lake.admitted.glob("*/segment.*.parquet"))
    for file in files:
        os.utime(file)
    return len(files)


def _move(source: Path, target: Path) -> None:
    try:
        source.rename(target)
    except OSError:
        # Another file system: the copy is complete before it has its name.
        data = source.read_bytes()
        write_atomically(target, data)
        source.unlink()
        return
    sync_folder(target.parent)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
