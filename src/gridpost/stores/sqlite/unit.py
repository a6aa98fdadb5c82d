"""The unit of work of one work: everything that a component stores, over one connection."""

from __future__ import annotations

from gridpost.stores.sqlite.bodies import WorkFiles
from gridpost.stores.sqlite.box import SqliteBox
from gridpost.stores.sqlite.controls import SqliteControls
from gridpost.stores.sqlite.directory_client import (
    SqliteDirectoryCopy,
    SqliteEnrolment,
    SqliteOwnEntry,
)
from gridpost.stores.sqlite.entries import SqliteEntries
from gridpost.stores.sqlite.group import Group
from gridpost.stores.sqlite.journal import GroupJournal
from gridpost.stores.sqlite.notices import SqliteNotices
from gridpost.stores.sqlite.registry import SqliteInvitations, SqliteLedger, SqliteRegistrations


class SqliteUnit:
    """core.ports.UnitOfWork and DirectoryClientWork, and core.directory_ports.RegistryUnit.

    Made anew for each work, because each work undoes its own files.
    """

    __slots__ = ("_connection", "_group", "box", "files", "journal", "notices")

    def __init__(self, group: Group, files: WorkFiles) -> None:
        """`group` is that of the transaction which the work is part of."""
        self._group = group
        self._connection = group.connection
        self.files = files
        self.box = SqliteBox(group, files)
        self.journal = GroupJournal(group)
        self.notices = SqliteNotices(group)

    @property
    def controls(self) -> SqliteControls:
        return SqliteControls(self._group)

    @property
    def registrations(self) -> SqliteRegistrations:
        return SqliteRegistrations(self._connection)

    @property
    def invitations(self) -> SqliteInvitations:
        return SqliteInvitations(self._connection)

    @property
    def ledger(self) -> SqliteLedger:
        return SqliteLedger(self._connection)

    @property
    def entries(self) -> SqliteEntries:
        return SqliteEntries(self._connection)

    @property
    def directory_copy(self) -> SqliteDirectoryCopy:
        return SqliteDirectoryCopy(self._connection)

    @property
    def own_entry(self) -> SqliteOwnEntry:
        return SqliteOwnEntry(self._connection)

    @property
    def enrolment(self) -> SqliteEnrolment:
        return SqliteEnrolment(self._connection)
