"""Which segments come in: complete, unchanged, new; everything else goes aside with its reason.

A segment without a manifest is not finished and stays where it is.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyarrow import compute, parquet

from gridpost.core.segment import Manifest, SegmentName
from gridpost.pipeline.files import Place, arguments
from gridpost.pipeline.lake import Lake


@dataclass(frozen=True, slots=True)
class Admission:
    """What one look at the landing folders brought."""

    admitted: tuple[SegmentName, ...]
    quarantined: tuple[tuple[str, str], ...]
    """File name and reason."""
    octets: int


def admit(lake: Lake, landings: tuple[Place, ...], now: datetime) -> Admission:
    """Check and take every finished segment of these folders."""
    admitted: list[SegmentName] = []
    aside: list[tuple[str, str]] = []
    octets = 0
    day = lake.admitted / now.astimezone(UTC).date().isoformat()
    known = {file.name for file in lake.admitted.rglob("segment.*.parquet")}
    archived = lake.archive.folders()
    for landing in landings:
        found = landing.glob("segment.*.json")
        for manifest_file, (reason, manifest) in zip(
            found, _examined(archived, landing, found, known), strict=True
        ):
            if reason or manifest is None:
                for file in _files(landing, manifest_file):
                    _quarantine(lake, file, reason, now)
                aside.append((manifest_file.stem, reason))
                continue
            file = landing / manifest.name.file
            manifest_file.rename(day / manifest_file.name)
            # Last: from here on the stream sees it. Its age counts from now, not from its export.
            file.renew()
            file.rename(day / file.name)
            known.add(file.name)
            admitted.append(manifest.name)
            octets += manifest.octets
        for file in landing.glob("segment.*.parquet"):
            # A crash between the two moves above leaves a segment whose manifest went ahead.
            for ahead in lake.admitted.glob(f"*/{file.stem}.json"):
                file.renew()
                file.rename(ahead.parent / file.name)
                name = SegmentName.parse(file.name)
                if name is not None:
                    admitted.append(name)
                break
    return Admission(tuple(admitted), tuple(aside), octets)


def _examined(
    archived: Sequence[Place], landing: Place, files: Sequence[Place], known: set[str]
) -> Iterator[tuple[str, Manifest | None]]:
    """Several at a time: reading and hashing leave Python to itself. A name comes once in a folder."""
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        yield from pool.map(lambda file: _examine(archived, landing, file, known), files)


def _examine(
    archived: Sequence[Place], landing: Place, file: Place, known: set[str]
) -> tuple[str, Manifest | None]:
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
    if name.file in known or any((day / name.file).is_file() for day in archived):
        return "a segment of this name was admitted already", None
    size = segment.size()
    if size != manifest.octets:
        return f"{size} octets instead of {manifest.octets}: torn", None
    if _sha256(segment) != manifest.sha256:
        return "the SHA-256 is not that of the manifest", None
    return _rows(segment, manifest), manifest


def _rows(segment: Place, manifest: Manifest) -> str:
    """Exactly the rows that the name says: bronze tells repeats apart by that."""
    name = manifest.name
    try:
        metadata = parquet.read_metadata(segment.path, **arguments(segment))
        if metadata.num_rows != manifest.rows or manifest.rows != name.rows:
            return f"{metadata.num_rows} rows instead of {name.rows}"
        texts = ["component", "instance"]
        rows = parquet.read_table(
            segment.path,
            columns=[*texts, "sequence"],
            read_dictionary=texts,
            use_threads=False,
            **arguments(segment),
        )
    except (pa.ArrowException, KeyError, OSError) as error:
        return f"not a segment: {error}"
    numbers = rows["sequence"].combine_chunks()
    steps = compute.unique(compute.pairwise_diff(numbers).drop_null()).to_pylist()
    if numbers[0].as_py() != name.first or steps not in ([], [1]):
        return "the rows are not those that the name says"
    for column, expected in (("component", name.component), ("instance", name.instance)):
        if set(compute.unique(rows[column]).to_pylist()) != {expected}:
            return f"the rows are not all of {expected}"
    return ""


def _files(landing: Place, manifest: Place) -> Iterator[Place]:
    yield manifest
    segment = landing / f"{manifest.stem}.parquet"
    if segment.is_file():
        yield segment


def _quarantine(lake: Lake, file: Place, reason: str, now: datetime) -> None:
    target = lake.quarantine / file.name
    number = 0
    while target.exists():
        number += 1
        target = lake.quarantine / f"{file.stem}.{number}{file.suffix}"
    file.rename(target)
    note = {"file": target.name, "reason": reason, "at": now.isoformat()}
    (lake.quarantine / f"{target.name}.reason").write(json.dumps(note).encode())


def archive(lake: Lake, committed: set[str]) -> int:
    """Segments that bronze holds leave the folder that the stream lists."""
    moved = 0
    for file in lake.admitted.glob("*/segment.*.parquet"):
        if file.name in committed:
            target = lake.archive / file.parent.name
            manifest = file.with_suffix(".json")
            if manifest.is_file():
                manifest.rename(target / manifest.name)
            file.rename(target / file.name)
            moved += 1
    for folder in lake.admitted.folders():
        if not folder.entries():
            folder.rmtree()
    return moved


def refresh(lake: Lake) -> int:
    """What waits in the admitted folder is new again: the stream forgets files above an age."""
    files = lake.admitted.glob("*/segment.*.parquet")
    for file in files:
        file.renew()
    return len(files)


def _sha256(file: Place) -> str:
    digest = hashlib.sha256()
    for chunk in file.chunks():
        digest.update(chunk)
    return digest.hexdigest()
