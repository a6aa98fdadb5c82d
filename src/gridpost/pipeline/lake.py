"""The one door to tables: Parquet folders behind a pointer file that is replaced atomically.

Every write goes to a new folder; a reader sees what the pointer lists, before or after a write,
never between. Nothing here knows Spark: whoever has only pyarrow can read every table.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pyarrow as pa
from pyarrow import dataset, parquet

from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline.files import Place, arguments, place, sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Found = TypeVar("Found")
FORM = 1
LAKE_FILE = "lake.json"
PARQUET, DELTA = "parquet", "delta"
PARTITION = "_partition"
NONE = "__HIVE_DEFAULT_PARTITION__"
GRACE_SECONDS = 3600.0
OUTDATED = "outdated"
_REPLACED = "_replaced"
"""A file whose time is that of its folder's replacement; Spark and others pass over such names."""
# Tables with documents or with everything that was journalled: a folder with rights of its own.
RESTRICTED = frozenset({"bronze", "content"})


@dataclass(frozen=True, slots=True)
class Part:
    """One live folder of a table."""

    path: str
    rows: int
    partition: str | None = None
    made_by: str = ""
    """The build or the stream and batch that wrote it."""
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pointer:
    """What a table is now."""

    version: int = 0
    schema_version: int = 1
    parts: tuple[Part, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def partitions(self) -> set[str | None]:
        return {part.partition for part in self.parts}


class Table:
    """One table: its pointer, and how its next state is written."""

    def __init__(self, folder: Place, name: str) -> None:
        self.folder = folder
        self.name = name

    @property
    def _file(self) -> Place:
        return self.folder / "pointer.json"

    def exists(self) -> bool:
        return self._file.is_file()

    def pointer(self) -> Pointer:
        try:
            content = json.loads(self._file.read_bytes())
        except FileNotFoundError:
            return Pointer()
        return self.pointed(content)

    def basis(self) -> Pointer:
        """What the next write goes on from: nothing of a table that is to be made anew."""
        pointer = self.pointer()
        return replace(pointer, parts=(), meta={}) if OUTDATED in pointer.meta else pointer

    def outdate(self) -> None:
        """Readers keep what there is until the next write counts, which takes the place of all of it."""
        pointer = self.pointer()
        self.publish(replace(pointer, meta={**pointer.meta, OUTDATED: True}))

    def pointed(self, content: Mapping[str, Any]) -> Pointer:
        if content["form"] > FORM:
            raise Refusal(
                Rule.STORE_TOO_NEW, f"the table {self.name} was written by a newer Gridpost"
            )
        parts = tuple(Part(**part) for part in content["parts"])
        return Pointer(content["version"], content["schema_version"], parts, content["meta"])

    def paths(self, parts: Iterable[Part]) -> list[str]:
        return [str(self.folder / part.path) for part in parts if part.path]

    def publish(self, pointer: Pointer) -> Pointer:
        """The moment at which a write counts."""
        following = replace(pointer, version=pointer.version + 1)
        self._mark_replaced(self.pointer().parts, following.parts)
        self._file.write(json.dumps(self.content(following), indent=1).encode())
        return following

    def _mark_replaced(self, before: Iterable[Part], after: Iterable[Part]) -> None:
        """Readers of what goes now have a grace from now on, however old it is: see `vacuum`."""
        gone = {part.path for part in before} - {part.path for part in after}
        paths = {PurePosixPath(path) for path in gone if path}
        for path in paths | {PurePosixPath(*path.parts[:2]) for path in paths}:
            folder = self.folder / str(path)
            if folder.is_dir() or not folder.local:
                (folder / _REPLACED).write(b"")

    def content(self, pointer: Pointer) -> dict[str, Any]:
        return {"form": FORM, "table": self.name, **asdict(pointer)}

    # ------------------------------------------------------------ writing

    def new_folder(self) -> Place:
        self.folder.mkdir()
        return self.folder / "data" / uuid4().hex

    def stage(self, frame: DataFrame, partition_by: str | None = None) -> list[Part]:
        """Rows on the disk, in a folder that nobody is pointed to yet."""
        folder = self.new_folder()
        if partition_by is None:
            frame.write.parquet(str(folder))
        else:
            from pyspark.sql import functions as F

            marked = frame.withColumn(PARTITION, F.col(partition_by).cast("string"))
            marked.write.partitionBy(PARTITION).parquet(str(folder))
        return self.parts_in(folder)

    def stage_arrow(self, rows: pa.Table) -> list[Part]:
        folder = self.new_folder().mkdir()
        file = folder / "part-0.parquet"
        parquet.write_table(rows, file.path, compression="zstd", **arguments(file))
        return self.parts_in(folder)

    def parts_in(self, folder: Place) -> list[Part]:
        """What was written, counted from the footers and safe on the disk."""
        found: dict[str, int] = {}
        files = folder.rglob("*.parquet")
        for file in files:
            rows = parquet.read_metadata(file.path, **arguments(file)).num_rows
            within = file.parent.below(self.folder)
            found[within] = found.get(within, 0) + rows
        if files:
            sync(files, [folder, *(self.folder / path for path in found)])
        parts = []
        for path, rows in found.items():
            value = PurePosixPath(path).name.partition(f"{PARTITION}=")[2]
            parts.append(Part(path, rows, None if value in ("", NONE) else value))
        return [part for part in parts if part.rows]

    def append(self, parts: Iterable[Part], **meta: Any) -> Pointer:
        pointer = self.basis()
        return self.publish(
            replace(pointer, parts=(*pointer.parts, *parts), meta={**pointer.meta, **meta})
        )

    def overwrite(
        self, parts: Iterable[Part], partitions: Iterable[str | None] | None = None, **meta: Any
    ) -> Pointer:
        """In place of these partitions; without any, of everything."""
        pointer = self.basis()
        gone = None if partitions is None else set(partitions)
        kept = () if gone is None else (p for p in pointer.parts if p.partition not in gone)
        return self.publish(replace(pointer, parts=(*kept, *parts), meta={**pointer.meta, **meta}))

    # ------------------------------------------------------------ reading without Spark

    def read(
        self,
        columns: Sequence[str] | None = None,
        where: Any = None,
        parts: Iterable[Part] | None = None,
    ) -> pa.Table | None:
        """Every live row, or those of some parts; None: there is none yet."""
        if parts is not None:
            return self._read(columns, where, parts)
        return self._steadily(lambda live: self._read(columns, where, live))

    def _steadily(self, look: Callable[[Sequence[Part]], Found]) -> Found:
        """Erasure removes folders at once: whoever was reading them looks at what is there now."""
        while True:
            pointer = self.pointer()
            try:
                return look(pointer.parts)
            except FileNotFoundError:
                if self.pointer().version == pointer.version:
                    raise

    def _read(
        self, columns: Sequence[str] | None, where: Any, parts: Iterable[Part]
    ) -> pa.Table | None:
        files = self.files(parts)
        if not files:
            return None
        newest = max(files, key=lambda file: file.modified())
        schema = columns_beside(newest, files)
        paths = [file.path for file in files]
        found = dataset.dataset(paths, schema=schema, format="parquet", **arguments(newest))
        return found.to_table(columns=None if columns is None else list(columns), filter=where)

    def vacuum(self, grace: float = GRACE_SECONDS) -> int:
        """Remove folders that nobody is pointed to, after everybody had time to finish reading."""
        paths = {part.path for part in self.pointer().parts if part.path}
        folders = {PurePosixPath(path).parts[1] for path in paths}
        doomed: list[Place] = []
        for folder in (self.folder / "data").folders():
            if folder.name not in folders:
                doomed.append(folder)
            elif f"data/{folder.name}" not in paths:
                # Partitions of one write are replaced one by one.
                doomed += [
                    part
                    for part in folder.folders()
                    if f"data/{folder.name}/{part.name}" not in paths
                ]
        old = [f for f in doomed if grace <= 0 or f.modified() < time.time() - grace]
        for folder in old:
            folder.vanish()
        return len(old)

    def files(self, parts: Iterable[Part]) -> list[Place]:
        """Raises FileNotFoundError: a part that is gone is not the same as an empty one."""
        found = []
        for part in parts:
            if part.path:
                folder = self.folder / part.path
                files = folder.glob("*.parquet")
                # Looked at last: a folder vanishes before the files in it do.
                if not (folder.is_dir() if folder.local else files):
                    raise FileNotFoundError(str(folder))
                found += files
        return found

    def octets(self) -> int:
        return self._steadily(lambda live: sum(file.size() for file in self.files(live)))


class Lake:
    """A folder with everything: landing, admitted and archived segments, tables, checkpoints."""

    def __init__(self, root: Place) -> None:
        self.root = root
        self.landing = root / "landing"
        self.admitted = root / "admitted"
        self.archive = root / "archive"
        self.quarantine = root / "quarantine"
        self.checkpoint = root / "checkpoints" / "bronze"

    @cached_property
    def format(self) -> str:
        """How tables are kept; decided when the lake is made."""
        found: str = json.loads((self.root / LAKE_FILE).read_bytes())["format"]
        return found

    @classmethod
    def open(
        cls, where: str | os.PathLike[str] | Place, *, create: bool = False, format: str = ""
    ) -> Lake:
        """`format` is that of a new lake; another than an existing one has is refused."""
        root = place(where)
        if format not in ("", PARQUET, DELTA):
            raise Refusal(Rule.USAGE, f"{format} is no format of a lake: {PARQUET} or {DELTA}")
        lake = cls(root)
        file = root / LAKE_FILE
        try:
            content = json.loads(file.read_bytes())
        except FileNotFoundError:
            if not create:
                raise Refusal(
                    Rule.USAGE,
                    f"{root} is not a lake: run gridpost pipeline ingest first, or name another",
                ) from None
            if any(entry.name not in ("landing", "lock") for entry in root.entries()):
                raise Refusal(
                    Rule.USAGE, f"{root} holds other things: a lake needs a folder of its own"
                ) from None
            root.mkdir()
            # A pointer is replaced; not every file system does that in one step.
            content = {"form": FORM, "format": format or (PARQUET if root.local else DELTA)}
            file.write(json.dumps(content).encode())
        except (OSError, ValueError) as error:
            raise Refusal(Rule.USAGE, f"{file} cannot be read: {error}") from None
        if content.get("form", FORM + 1) > FORM:
            raise Refusal(
                Rule.STORE_TOO_NEW,
                f"the lake {root} has form {content.get('form')}, this Gridpost knows {FORM}",
                "a newer Gridpost has written it: use that one",
            )
        if format and content["format"] != format:
            raise Refusal(Rule.USAGE, f"the lake {root} is kept as {content['format']}")
        for folder in (lake.landing, lake.admitted, lake.archive, lake.quarantine):
            folder.mkdir()
        return lake

    def table(self, layer: str, name: str) -> Table:
        return self._at(self._layer(layer) / name)

    def tables(self, *, begun: bool = False) -> Iterator[Table]:
        """`begun`: also those whose first write never came to count."""
        for parent in (self.root / "tables", self.root / "restricted"):
            for layer in sorted(parent.folders(), key=str):
                for folder in sorted(layer.folders(), key=str):
                    table = self._at(folder)
                    if begun or table.exists():
                        yield table

    def _at(self, folder: Place) -> Table:
        name = f"{folder.parent.name}.{folder.name}"
        if self.format == DELTA:
            from gridpost.pipeline.delta_log import DeltaTable

            return DeltaTable(folder, name)
        return Table(folder, name)

    def _layer(self, layer: str) -> Place:
        if layer not in RESTRICTED:
            return self.root / "tables" / layer
        folder = self.root / "restricted"
        if not folder.is_dir():
            folder.mkdir(mode=0o700)
        return folder / layer

    def secret(self, name: str) -> bytes:
        """A key of this lake, made once and readable by its owner only."""
        file = (self.root / "keys").mkdir(mode=0o700) / name
        if not file.is_file():
            file.write(os.urandom(32), mode=0o600)
        return file.read_bytes()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """One writer at a time; readers need no lock."""
        with (self.root / "lock").locked(f"the lake {self.root}"):
            yield


def columns_beside(newest: Place, files: Iterable[Place]) -> pa.Schema:
    """All columns of one write: a file may lack those that its rows do not use."""
    folder = newest.parent.path
    written = [file for file in files if file.parent.path == folder]
    found = (parquet.read_schema(file.path, **arguments(file)) for file in written)
    return max(found, key=lambda schema: len(schema.names))


Progress = Callable[[str], None]


def silent(_: str) -> None:
    """Nobody watches."""
