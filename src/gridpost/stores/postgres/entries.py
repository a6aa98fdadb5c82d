"""The content of a component-directory in PostgreSQL: own entries, and replicas of other subsystems."""

from __future__ import annotations

from collections.abc import Sequence

from gridpost.core.component import Component
from gridpost.core.identifiers import ComponentCode
from gridpost.core.synchronisation import Subsystem
from gridpost.stores.directory_values import read_component, write_component
from gridpost.stores.postgres.session import Connection
from gridpost.stores.postgres.text import storable
from gridpost.stores.values import from_microseconds, to_microseconds

_REVISION = "SELECT revision FROM entries_state"
_CHANGED = "UPDATE entries_state SET revision = revision + 1"
_OWN = "SELECT component FROM entry ORDER BY code"
_FIND = "SELECT component FROM entry WHERE code = %s"
_PUT = """
    INSERT INTO entry (code, component) VALUES (%s, %s)
    ON CONFLICT (code) DO UPDATE SET component = excluded.component
"""
_REMOVE = "DELETE FROM entry WHERE code = %s"
_REPLICAS = """
    SELECT number, component_directory, content_id, valid_until FROM replica ORDER BY number
"""
_REPLICA_ENTRIES = "SELECT component FROM replica_entry WHERE replica = %s ORDER BY line"
_FIND_REPLICA = "SELECT number, content_id FROM replica WHERE component_directory = %s"
_ADD_REPLICA = """
    INSERT INTO replica (component_directory, content_id, valid_until) VALUES (%s, %s, %s)
    RETURNING number
"""
_REPLACE_REPLICA = "UPDATE replica SET content_id = %s, valid_until = %s WHERE number = %s"
_CLEAR_REPLICA = "DELETE FROM replica_entry WHERE replica = %s"
_ADD_REPLICA_ENTRY = "INSERT INTO replica_entry (replica, line, component) VALUES (%s, %s, %s)"
_DROP_REPLICA = "DELETE FROM replica WHERE component_directory = %s"


class PostgresEntries:
    """core.directory_ports.Entries."""

    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def revision(self) -> int:
        found = self._connection.execute(_REVISION).fetchone()
        return int(found[0]) if found else 0

    def own(self) -> Sequence[Component]:
        return [read_component(text) for (text,) in self._connection.execute(_OWN).fetchall()]

    def find(self, code: str) -> Component | None:
        if not storable(code):
            return None
        found = self._connection.execute(_FIND, (code,)).fetchone()
        return None if found is None else read_component(found[0])

    def put(self, component: Component) -> None:
        self._connection.execute(_PUT, (component.code, write_component(component)))
        self._connection.execute(_CHANGED)

    def remove(self, code: str) -> None:
        if not storable(code) or self._connection.execute(_REMOVE, (code,)).rowcount == 0:
            raise KeyError(code)
        self._connection.execute(_CHANGED)

    def replicas(self) -> Sequence[Subsystem]:
        return [
            Subsystem(
                ComponentCode(code),
                content_id,
                tuple(
                    read_component(text)
                    for (text,) in self._connection.execute(_REPLICA_ENTRIES, (number,)).fetchall()
                ),
                None if valid_until is None else from_microseconds(valid_until),
            )
            for number, code, content_id, valid_until in self._connection.execute(
                _REPLICAS
            ).fetchall()
        ]

    def put_replica(self, subsystem: Subsystem) -> None:
        code, content_id = subsystem.component_directory, subsystem.content_id
        valid_until = (
            None if subsystem.valid_until is None else to_microseconds(subsystem.valid_until)
        )
        found = self._connection.execute(_FIND_REPLICA, (code,)).fetchone()
        if found is None:
            added = self._connection.execute(
                _ADD_REPLICA, (code, content_id, valid_until)
            ).fetchone()
            if added is None:
                raise ValueError(f"the replica of {code} got no number")
            number = added[0]
        else:
            number = found[0]
            self._connection.execute(_REPLACE_REPLICA, (content_id, valid_until, number))
        # 503 cl. 7.7.2: the same contentID is the same content; only its validity is longer.
        if found is None or found[1] != content_id:
            self._connection.execute(_CLEAR_REPLICA, (number,))
            self._connection.cursor().executemany(
                _ADD_REPLICA_ENTRY,
                [
                    (number, line, write_component(component))
                    for line, component in enumerate(subsystem.components)
                ],
            )
        self._connection.execute(_CHANGED)

    def drop_replica(self, code: ComponentCode) -> None:
        if self._connection.execute(_DROP_REPLICA, (code,)).rowcount:
            self._connection.execute(_CHANGED)
