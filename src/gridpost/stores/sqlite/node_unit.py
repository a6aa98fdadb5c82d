"""One work on the books of a MADES 1.1 node."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Contact
from gridpost.core.message import InternalType, Metadata
from gridpost.core.node import (
    BoxEntry,
    KnownCertificate,
    LocalState,
    NodeComponent,
    NodeComponentType,
    NodeMessage,
    Priorities,
    PurgeStrategy,
    RemoteNode,
    Routing,
)
from gridpost.stores.sqlite.bodies import Kept, WorkFiles
from gridpost.stores.sqlite.journal import SqliteJournal
from gridpost.stores.values import (
    from_microseconds,
    read_json,
    read_metadata,
    to_microseconds,
    write_json,
    write_metadata,
)

_COLUMNS = (
    "number, message_id, receiver, sender, business_type, internal_type, state, size, "
    "transferred_at, expires_at"
)
_FINAL = "state IN ('DELIVERED', 'RECEIVED', 'FAILED')"
_ADD = """
    INSERT INTO message (message_id, receiver, sender, business_type, internal_type, state,
        transferred_at, changed_at, expires_at, size, metadata, body, file)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_WAITING = """
    SELECT business_type, count(*) FROM message
    WHERE receiver = ? AND state = 'ACCEPTED' GROUP BY business_type
"""
_WAITING_FOR = """
    SELECT receiver, count(*), min(transferred_at) FROM message
    WHERE state = 'ACCEPTED' GROUP BY receiver
"""
_EXPIRED = f"""
    SELECT {_COLUMNS} FROM message
    WHERE state IN ('VERIFYING', 'ACCEPTED', 'DELIVERING') AND expires_at <= ?
    ORDER BY expires_at LIMIT ?
"""
_PUT_CERTIFICATE = """
    INSERT INTO certificate (code, position, kind, certificate_id, revoked, der, not_before,
        not_after, subject_code) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class SqliteNodeUnit:
    """core.node_ports.NodeUnit."""

    __slots__ = ("_connection", "_files", "journal")

    def __init__(self, connection: sqlite3.Connection, files: WorkFiles) -> None:
        self._connection = connection
        self._files = files
        self.journal = SqliteJournal(connection)

    # ------------------------------------------------------------ the message-box

    def add(self, message: NodeMessage, state: LocalState, at: datetime) -> None:
        metadata, expiration = message.metadata, message.metadata.expiration_time
        kept = self._files.keep(message.content)
        when = to_microseconds(at)
        self._connection.execute(
            _ADD,
            (
                metadata.message_id, metadata.receiver_code, metadata.sender_code,
                metadata.message_type, metadata.internal_type.value, state.value, when, when,
                None if expiration is None else to_microseconds(expiration.at), kept.size,
                write_metadata(metadata), kept.body, kept.file,
            ),
        )  # fmt: skip

    def entry(self, message_id: str) -> BoxEntry | None:
        row = self._connection.execute(
            f"SELECT {_COLUMNS} FROM message WHERE message_id = ?", (message_id,)
        ).fetchone()
        return None if row is None else _entry(row)

    def set_state(self, message_id: str, state: LocalState, at: datetime) -> None:
        self._connection.execute(
            "UPDATE message SET state = ?, changed_at = ? WHERE message_id = ?",
            (state.value, to_microseconds(at), message_id),
        )

    def pending(
        self, receiver: str, priorities: Priorities, max_count: int, max_bytes: int
    ) -> tuple[list[tuple[Metadata, bytes]], int]:
        waiting = self._connection.execute(_WAITING, (receiver,)).fetchall()
        total = sum(count for _, count in waiting)
        by_priority: dict[int, list[str]] = {}
        for business_type, _ in waiting:
            by_priority.setdefault(priorities.of(business_type), []).append(business_type)
        chosen: list[tuple[Metadata, bytes]] = []
        size = 0
        for priority in sorted(by_priority, reverse=True):
            types = by_priority[priority]
            rows = self._connection.execute(
                "SELECT metadata, body, file, size FROM message WHERE receiver = ? "
                f"AND state = 'ACCEPTED' AND business_type IN ({_marks(types)}) "
                "ORDER BY number LIMIT ?",
                (receiver, *types, max_count - len(chosen)),
            )
            for metadata, body, file, length in rows:
                # One message always fits: else it would wait for ever.
                if chosen and size + length > max_bytes:
                    return chosen, total - len(chosen)
                content = self._files.load(Kept(body, file, length))
                chosen.append((read_metadata(metadata), content))
                size += length
            if len(chosen) >= max_count:
                break
        return chosen, total - len(chosen)

    def expire(self, now: datetime, limit: int) -> list[BoxEntry]:
        rows = self._connection.execute(_EXPIRED, (to_microseconds(now), limit)).fetchall()
        entries = [_entry(row) for row in rows]
        for entry in entries:
            self.set_state(entry.message_id, LocalState.FAILED, now)
        return entries

    def purge(
        self,
        strategy: PurgeStrategy,
        types: Collection[str],
        but: bool,
        before: datetime,
        limit: int,
    ) -> int:
        if strategy is PurgeStrategy.NEVER or (not types and not but):
            return 0
        names = list(types)
        condition = (
            f"AND business_type {'NOT ' if but else ''}IN ({_marks(names)})" if names else ""
        )
        content = (
            ""
            if strategy is PurgeStrategy.WHOLE
            else ("AND (body IS NOT NULL OR file IS NOT NULL)")
        )
        rows = self._connection.execute(
            f"SELECT message_id, file FROM message WHERE {_FINAL} AND changed_at < ? "
            f"{condition} {content} ORDER BY changed_at LIMIT ?",
            (to_microseconds(before), *names, limit),
        ).fetchall()
        if strategy is PurgeStrategy.WHOLE:
            return self.delete([message_id for message_id, _ in rows])
        for message_id, file in rows:
            self._files.doom(file)
            self._connection.execute(
                "UPDATE message SET body = NULL, file = NULL WHERE message_id = ?", (message_id,)
            )
        return len(rows)

    def final(
        self, before: datetime, limit: int, max_bytes: int
    ) -> list[tuple[BoxEntry, Metadata, bytes | None]]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS}, metadata, body, file FROM message "
            f"WHERE {_FINAL} AND changed_at < ? ORDER BY number LIMIT ?",
            (to_microseconds(before), limit),
        )
        found: list[tuple[BoxEntry, Metadata, bytes | None]] = []
        loaded = 0
        for row in rows:
            entry, body, file = _entry(row[:10]), row[11], row[12]
            gone = body is None and file is None
            loaded += 0 if gone else entry.size
            if found and loaded > max_bytes:
                break
            content = None if gone else self._files.load(Kept(body, file, entry.size))
            found.append((entry, read_metadata(row[10]), content))
        return found

    def delete(self, message_ids: Collection[str]) -> int:
        deleted = 0
        for message_id in message_ids:
            row = self._connection.execute(
                "DELETE FROM message WHERE message_id = ? RETURNING file", (message_id,)
            ).fetchone()
            if row is not None:
                self._files.doom(row[0])
                deleted += 1
        return deleted

    def counts(self) -> Mapping[LocalState, int]:
        rows = self._connection.execute("SELECT state, count(*) FROM message GROUP BY state")
        return {LocalState(state): count for state, count in rows}

    def entries(self, after: int, limit: int) -> list[BoxEntry]:
        rows = self._connection.execute(
            f"SELECT {_COLUMNS} FROM message WHERE number > ? ORDER BY number LIMIT ?",
            (after, limit),
        )
        return [_entry(row) for row in rows]

    def waiting(self) -> Mapping[str, tuple[int, datetime]]:
        rows = self._connection.execute(_WAITING_FOR).fetchall()
        return {receiver: (count, from_microseconds(at)) for receiver, count, at in rows}

    # ------------------------------------------------------------ the directory

    def components(self) -> list[NodeComponent]:
        certificates: dict[str, list[KnownCertificate]] = {}
        for (
            code,
            kind,
            certificate_id,
            revoked,
            der,
            start,
            end,
            subject,
        ) in self._connection.execute(
            "SELECT code, kind, certificate_id, revoked, der, not_before, not_after, "
            "subject_code FROM certificate ORDER BY code, position"
        ):
            found = Certificate(
                certificate_id, CertificateKind(kind), der, from_microseconds(start),
                from_microseconds(end), subject,
            )  # fmt: skip
            certificates.setdefault(code, []).append(KnownCertificate(found, bool(revoked)))
        return [
            _component(code, type_, read_json(text), certificates.get(code, ()))
            for code, type_, text in self._connection.execute(
                "SELECT code, type, description FROM component ORDER BY code"
            )
        ]

    def put_component(self, component: NodeComponent) -> None:
        contact, routing = component.contact, component.routing
        text = write_json(
            {
                "contact": [contact.organization, contact.person, contact.email, contact.phone],
                "routing": [
                    routing.node, routing.primary_url, routing.secondary_url, routing.node_mversion,
                ],
                "mversion": component.mversion,
            }
        )  # fmt: skip
        self.remove_component(component.code)
        self._connection.execute(
            "INSERT INTO component (code, node, type, description) VALUES (?, ?, ?, ?)",
            (component.code, routing.node, component.type.value, text),
        )
        self._connection.executemany(
            _PUT_CERTIFICATE,
            [
                (
                    component.code, position, known.certificate.kind.value,
                    known.certificate.certificate_id, int(known.revoked), known.certificate.der,
                    to_microseconds(known.certificate.not_before),
                    to_microseconds(known.certificate.not_after), known.certificate.subject_code,
                )
                for position, known in enumerate(component.certificates)
            ],
        )  # fmt: skip

    def remove_component(self, code: str) -> None:
        self._connection.execute("DELETE FROM component WHERE code = ?", (code,))

    def dversion(self) -> int:
        return int(self.note("dversion") or "0")

    def raise_dversion(self) -> int:
        raised = self.dversion() + 1
        self.set_note("dversion", str(raised))
        return raised

    # ------------------------------------------------------------ nodes and notes

    def nodes(self) -> list[RemoteNode]:
        return [
            RemoteNode(
                code, tuple(read_json(urls)), mversion, dversion,
                None if last is None else from_microseconds(last), problem,
            )
            for code, urls, mversion, dversion, last, problem in self._connection.execute(
                "SELECT code, urls, mversion, dversion, last_success, problem "
                "FROM remote_node ORDER BY code"
            )
        ]  # fmt: skip

    def put_node(self, node: RemoteNode) -> None:
        self._connection.execute(
            "INSERT OR REPLACE INTO remote_node "
            "(code, urls, mversion, dversion, last_success, problem) VALUES (?, ?, ?, ?, ?, ?)",
            (
                node.code, write_json(list(node.urls)), node.mversion, node.dversion,
                None if node.last_success is None else to_microseconds(node.last_success),
                node.problem,
            ),
        )  # fmt: skip

    def remove_node(self, code: str) -> None:
        self._connection.execute("DELETE FROM remote_node WHERE code = ?", (code,))

    def note(self, name: str) -> str:
        row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def set_note(self, name: str, value: str) -> None:
        self._connection.execute(
            "INSERT INTO meta (name, value) VALUES (?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )


def _entry(row: Sequence[Any]) -> BoxEntry:
    number, message_id, receiver, sender, type_, internal, state, size, at, expires = row
    return BoxEntry(
        number, message_id, receiver, sender, type_, InternalType(internal), LocalState(state),
        size, from_microseconds(at), None if expires is None else from_microseconds(expires),
    )  # fmt: skip


def _component(
    code: str, type_: str, told: Mapping[str, Any], certificates: Sequence[KnownCertificate]
) -> NodeComponent:
    return NodeComponent(
        code,
        NodeComponentType(type_),
        Contact(*told["contact"]),
        Routing(*told["routing"]),
        told["mversion"],
        tuple(certificates),
    )


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
