"""A table whose pointer is the log of Delta Lake: every tool that reads Delta sees the same rows.

Parquet files are staged as in any lake; a write counts when the next entry of `_delta_log` has its
name. Protocol 1/2 (no deletion vectors, no column mapping). What a part is made of stands in the
`userMetadata` of the entry, so that both are replaced in one step.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from gridpost import __version__
from gridpost.core.refusal import Refusal, Rule
from gridpost.pipeline.files import Place
from gridpost.pipeline.lake import Part, Pointer, Table, columns_beside

LOG = "_delta_log"
READER, WRITER = 1, 2
# Spark keeps its own schema beside that of Parquet.
_SPARK_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
_NO_COLUMNS = '{"type":"struct","fields":[]}'


class DeltaTable(Table):
    @property
    def _log(self) -> Place:
        return self.folder / LOG

    def exists(self) -> bool:
        return self._newest() is not None

    def pointer(self) -> Pointer:
        known = self._known()
        return Pointer() if known is None else self.pointed(known["pointer"])

    def publish(self, pointer: Pointer) -> Pointer:
        following = replace(pointer, version=pointer.version + 1)
        known = self._known()
        before = () if known is None else self.pointed(known["pointer"]).parts
        schema = self._schema(following.parts) or (known or {}).get("schema") or _NO_COLUMNS
        table_id = uuid4().hex if known is None else known["id"]
        now = int(time.time() * 1000)
        kept = {part.path for part in before} & {part.path for part in following.parts}
        about = {"pointer": self.content(following), "id": table_id, "schema": schema}
        actions: list[dict[str, Any]] = [
            {
                "commitInfo": {
                    "timestamp": now,
                    "operation": "WRITE",
                    "operationParameters": {},
                    "engineInfo": f"Gridpost/{__version__}",
                    "userMetadata": json.dumps(about),
                }
            }
        ]
        if known is None:
            protocol = {"minReaderVersion": READER, "minWriterVersion": WRITER}
            actions.append({"protocol": protocol})
        if known is None or known["schema"] != schema:
            actions.append({"metaData": _meta(table_id, schema, now)})
        for part in before:
            if part.path not in kept:
                actions += [_remove(file, now) for file in self._files(part)]
        for part in following.parts:
            if part.path not in kept:
                actions += [
                    _add(file, (self.folder / file).size(), now) for file in self._files(part)
                ]
        self._mark_replaced(before, following.parts)
        self._commit(pointer.version, actions)
        return following

    def _commit(self, number: int, actions: Iterable[dict[str, Any]]) -> None:
        """The entry has its name or is not there; the name of another's entry is never taken."""
        entry = self._log / f"{number:020d}.json"
        try:
            entry.create("\n".join(json.dumps(action) for action in actions).encode() + b"\n")
        except FileExistsError:
            raise Refusal(
                Rule.STORE_IN_USE, f"another writer has changed the table {self.name} meanwhile"
            ) from None

    def _newest(self) -> Place | None:
        entries = [file for file in self._log.glob("*.json") if file.stem.isdigit()]
        return entries[-1] if entries else None

    def _known(self) -> dict[str, Any] | None:
        entry = self._newest()
        if entry is None:
            return None
        for line in entry.read_text().splitlines():
            info = json.loads(line).get("commitInfo")
            if info is not None and "userMetadata" in info:
                found: dict[str, Any] = json.loads(info["userMetadata"])
                return found
        raise Refusal(
            Rule.USAGE,
            f"the table {self.name} was changed by another writer of Delta Lake",
            f"{entry.name} is not of Gridpost: restore the table to the version before it, "
            "or build it anew",
        )

    def _files(self, part: Part) -> Iterator[str]:
        for file in self.files([part]):
            yield file.below(self.folder)

    def _schema(self, parts: Iterable[Part]) -> str:
        """Of the newest rows: columns are added only, so it has all of them."""
        files = self.files(parts)
        if not files:
            return ""
        arrow = columns_beside(files[-1], files)
        own: bytes | None = (arrow.metadata or {}).get(_SPARK_SCHEMA)
        if own is not None:
            return own.decode()
        from pyspark.sql.pandas.types import from_arrow_schema

        text: str = from_arrow_schema(arrow).json()
        return text


def _meta(table_id: str, schema: str, now: int) -> dict[str, Any]:
    return {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema,
        "partitionColumns": [],
        "configuration": {},
        "createdTime": now,
    }


def _add(file: str, size: int, now: int) -> dict[str, Any]:
    # Paths are URIs in the log.
    return {
        "add": {
            "path": quote(file, safe="/="),
            "partitionValues": {},
            "size": size,
            "modificationTime": now,
            "dataChange": True,
        }
    }


def _remove(file: str, now: int) -> dict[str, Any]:
    return {
        "remove": {"path": quote(file, safe="/="), "deletionTimestamp": now, "dataChange": True}
    }
