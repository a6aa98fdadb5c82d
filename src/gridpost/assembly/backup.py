"""One component in one file: its store of one moment, its keys, its configuration; and back again.

The archive is a tar file that only its owner can read. Its first member says what is in it, with a
SHA-256 of every file, and nothing is unpacked that does not agree.
"""

from __future__ import annotations

import getpass
import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from gridpost import __version__
from gridpost.assembly.broker_configuration import read_broker_configuration
from gridpost.assembly.configuration import read_toml
from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.assembly.node_configuration import read_node_configuration
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.sqlite import snapshot
from gridpost.stores.sqlite.bodies import sync_folder
from gridpost.stores.sqlite.database import CONTENTS, DATABASE

MANIFEST = "manifest.json"
FORMAT = 1
STORE, KEYS = "store", "keys"
_PIECE = 1024 * 1024
_MAX_MANIFEST = 256 * 1024 * 1024

Progress = Callable[[int, int], None]
"""Bytes done, bytes in all."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a component keeps what has to be saved."""

    component: str
    code: str
    home: Path
    contents: bool = True
    """Its database names files; tables of a bus are also those of its handlers."""


@dataclass(frozen=True, slots=True)
class BackedUp:
    component: str
    code: str
    taken_at: datetime
    files: int
    bytes: int
    sequence: int


def back_up(file: Path, archive: Path, at: datetime, progress: Progress) -> BackedUp:
    """Save the component that this file configures, whether it runs or not."""
    place = _place(file)
    if archive.exists():
        raise Refusal(Rule.USAGE, f"{archive} exists: a backup overwrites nothing")
    partial = archive.with_name(f".{archive.name}.part")
    try:
        # Beside the store, because content files are linked, not copied.
        with tempfile.TemporaryDirectory(prefix=".backup-", dir=place.home) as folder:
            copy = Path(folder) / STORE
            taken = snapshot.take(place.home / STORE, copy, contents=place.contents)
            members = {
                f"{STORE}/{DATABASE}": taken.database,
                **{f"{STORE}/{CONTENTS}/{path.name}": path for path in taken.contents},
                **{
                    f"{KEYS}/{path.name}": path
                    for path in sorted((place.home / KEYS).glob("*"))
                    if path.is_file() and not path.name.startswith(".")
                },
                f"configuration/{file.name}": file,
            }
            manifest = {
                "format": FORMAT,
                "gridpost": __version__,
                "component": place.component,
                "code": place.code,
                "taken_at": at.isoformat(),
                "schema_version": taken.schema_version,
                "journal_sequence": taken.sequence,
            }
            size = _pack(partial, manifest, members, progress)
        partial.rename(archive)
        sync_folder(archive.absolute().parent)
    except OSError as error:
        raise Refusal(Rule.STORE_FULL, f"{archive}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    return BackedUp(place.component, place.code, at, len(members), size, taken.sequence)


def restore(archive: Path, file: Path, at: datetime, progress: Progress) -> BackedUp:
    """Bring a component back. `file` is its configuration; where there is none, the saved one."""
    with _opened(archive) as (tar, manifest):
        written = not file.exists()
        if written:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            saved = next(n for n in manifest["files"] if n.startswith("configuration/"))
            data = _read_small(tar, saved, manifest)
            file.touch(mode=0o600)
            file.write_bytes(data)
        try:
            place = _place(file)
            if (place.component, place.code) != (manifest["component"], manifest["code"]):
                raise Refusal(
                    Rule.USAGE,
                    f"the backup is of the {manifest['component']} {manifest['code']}, "
                    f"{file} configures the {place.component} {place.code}",
                )
            if place.home.exists() and any(place.home.iterdir()):
                raise Refusal(
                    Rule.USAGE,
                    f"{place.home} is not empty",
                    "move it away first: a restored component starts from the backup alone",
                )
            taken_at = datetime.fromisoformat(manifest["taken_at"])
            size = _unpack(tar, manifest, place.home, progress)
            snapshot.bring_back(
                place.home / STORE, taken_at, at, getpass.getuser(), contents=place.contents
            )
        except BaseException:
            if written:
                file.unlink()
            raise
    return BackedUp(
        place.component,
        place.code,
        taken_at,
        len(manifest["files"]),
        size,
        manifest["journal_sequence"],
    )


def _place(file: Path) -> Place:
    component = read_toml(file).get("component")
    readers: dict[Any, Callable[[Path], Any]] = {
        "component-directory": read_directory_configuration,
        "broker": read_broker_configuration,
        "bus": _bus,
        "capacity": _capacity,
        "endpoint": read_endpoint_configuration,
        "node": read_node_configuration,
    }
    if component not in readers:
        raise Refusal(Rule.USAGE, f"{file}: component must be one of {', '.join(sorted(readers))}")
    found = readers[component](file)
    if getattr(found, "postgres", None) is not None:
        raise Refusal(
            Rule.USAGE,
            f"the data of {found.code} are in PostgreSQL",
            "back the database up with its own tools, such as pg_dump, and the folder of keys with it",
        )
    return Place(str(component), found.code, found.home, contents=component != "bus")


def _capacity(file: Path) -> Any:
    # The library for RabbitMQ is an extra: only who runs this component needs it.
    from gridpost.assembly.capacity_configuration import read_capacity_configuration

    return read_capacity_configuration(file)


def _bus(file: Path) -> Any:
    # As above.
    from gridpost.assembly.bus_configuration import read_bus_configuration

    return read_bus_configuration(file)


def _pack(
    archive: Path, manifest: dict[str, Any], members: dict[str, Path], progress: Progress
) -> int:
    total = sum(path.stat().st_size for path in members.values())
    files: dict[str, dict[str, Any]] = {}
    done = 0
    for name, path in members.items():
        files[name] = {"size": path.stat().st_size, "sha256": _digest(path)}
        done += files[name]["size"]
        progress(done, 2 * total)
    text = json.dumps(manifest | {"files": files}, indent=1).encode()
    handle = os.open(archive, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            tar.addfile(_member(MANIFEST, len(text)), io.BytesIO(text))
            for name, path in members.items():
                with path.open("rb") as source:
                    tar.addfile(_member(name, files[name]["size"]), source)
                done += files[name]["size"]
                progress(done, 2 * total)
        stream.flush()
        os.fsync(stream.fileno())
    return total


def _member(name: str, size: int) -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.size = size
    found.mode = 0o600
    return found


@contextmanager
def _opened(archive: Path) -> Iterator[tuple[tarfile.TarFile, dict[str, Any]]]:
    try:
        with tarfile.open(archive, "r:") as tar:
            first = tar.next()
            if first is None or first.name != MANIFEST or first.size > _MAX_MANIFEST:
                raise Refusal(Rule.USAGE, f"{archive} is not a backup of Gridpost")
            stream = tar.extractfile(first)
            assert stream is not None
            manifest = json.load(stream)
            if manifest["format"] > FORMAT:
                raise Refusal(
                    Rule.STORE_TOO_NEW, f"{archive} was written by Gridpost {manifest['gridpost']}"
                )
            yield tar, manifest
    except OSError as error:
        raise Refusal(Rule.USAGE, f"{archive}: {error.strerror or error}") from None
    except (tarfile.TarError, ValueError, KeyError, TypeError, StopIteration):
        raise Refusal(Rule.USAGE, f"{archive} is not a whole backup of Gridpost") from None


def _read_small(tar: tarfile.TarFile, name: str, manifest: dict[str, Any]) -> bytes:
    stream = tar.extractfile(name)
    if stream is None:
        raise KeyError(name)
    data = stream.read()
    if hashlib.sha256(data).hexdigest() != manifest["files"][name]["sha256"]:
        raise Refusal(Rule.STORE_DAMAGED, f"{name} in the backup is damaged")
    return data


def _unpack(tar: tarfile.TarFile, manifest: dict[str, Any], home: Path, progress: Progress) -> int:
    """Into a folder beside the final one, which gets its name when everything is there and checked."""
    files: dict[str, dict[str, Any]] = manifest["files"]
    total = sum(int(entry["size"]) for entry in files.values())
    home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".restore-", dir=home.parent))
    done = 0
    try:
        for folder in (STORE, f"{STORE}/{CONTENTS}", KEYS):
            (work / folder).mkdir(mode=0o700)
        seen = set()
        for member in tar:
            if member.name == MANIFEST:
                continue
            parts = PurePosixPath(member.name).parts
            if not member.isreg() or member.name not in files or ".." in parts or parts[0] == "/":
                raise Refusal(Rule.STORE_DAMAGED, f"'{member.name}' does not belong in a backup")
            seen.add(member.name)
            if parts[0] in (STORE, KEYS):
                _extract(tar, member, work / member.name, files[member.name])
            done += member.size
            progress(done, total)
        if seen != set(files):
            raise Refusal(Rule.STORE_DAMAGED, "the backup is not complete")
        for folder in (f"{STORE}/{CONTENTS}", STORE, KEYS, "."):
            sync_folder(work / folder)
        if home.exists():
            home.rmdir()
        work.rename(home)
        sync_folder(home.parent)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return total


def _extract(
    tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, told: dict[str, Any]
) -> None:
    source = tar.extractfile(member)
    assert source is not None
    digest = hashlib.sha256()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as target:
        while piece := source.read(_PIECE):
            digest.update(piece)
            target.write(piece)
        target.flush()
        os.fsync(target.fileno())
    if digest.hexdigest() != told["sha256"]:
        raise Refusal(Rule.STORE_DAMAGED, f"{member.name} in the backup is damaged")


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
