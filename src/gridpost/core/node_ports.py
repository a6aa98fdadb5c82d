"""What the services of a node need from a store."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import BinaryIO, Protocol, TypeVar

from gridpost.core.journal import Identity, JournalRow, Recorded
from gridpost.core.message import Metadata
from gridpost.core.message_box import Content
from gridpost.core.node import (
    BoxEntry,
    LocalState,
    NodeComponent,
    NodeMessage,
    Priorities,
    PurgeStrategy,
    RemoteNode,
)

T = TypeVar("T")


class NodeJournal(Protocol):
    def append(self, row: JournalRow) -> int: ...

    def read(self, after: int, limit: int) -> Sequence[Recorded]: ...

    def listed(self, after: int, limit: int) -> Sequence[Recorded]: ...

    def prune(self, now: datetime, retention: timedelta, *, limit: int = ...) -> int:
        """How many of the oldest rows went."""
        ...


class NodeUnit(Protocol):
    """One work; everything in it happens together or not at all."""

    @property
    def journal(self) -> NodeJournal: ...

    # -- the message-box
    def add(self, message: NodeMessage, state: LocalState, at: datetime) -> None: ...

    def entry(self, message_id: str) -> BoxEntry | None: ...

    def set_state(self, message_id: str, state: LocalState, at: datetime) -> None: ...

    def pending(
        self, receiver: str, priorities: Priorities, max_count: int, max_bytes: int
    ) -> tuple[list[tuple[Metadata, bytes]], int]:
        """The next messages for an endpoint, and how many more wait."""
        ...

    def expire(self, now: datetime, limit: int) -> list[BoxEntry]: ...

    def purge(
        self,
        strategy: PurgeStrategy,
        types: Collection[str],
        but: bool,
        before: datetime,
        limit: int,
    ) -> int:
        """Of messages that have been final since `before`. `but`: all types except these."""
        ...

    def final(
        self, before: datetime, limit: int, max_bytes: int
    ) -> list[tuple[BoxEntry, Metadata, bytes | None]]: ...

    def delete(self, message_ids: Collection[str]) -> int: ...

    def counts(self) -> Mapping[LocalState, int]: ...

    def entries(self, after: int, limit: int) -> list[BoxEntry]: ...

    def waiting(self) -> Mapping[str, tuple[int, datetime]]:
        """Of each endpoint that something waits for: how much, and since when."""
        ...

    # -- the directory
    def components(self) -> list[NodeComponent]: ...

    def put_component(self, component: NodeComponent) -> None: ...

    def remove_component(self, code: str) -> None: ...

    def dversion(self) -> int: ...

    def raise_dversion(self) -> int: ...

    # -- the nodes to synchronise with
    def nodes(self) -> list[RemoteNode]: ...

    def put_node(self, node: RemoteNode) -> None: ...

    def remove_node(self, code: str) -> None: ...

    # -- other things to remember
    def note(self, name: str) -> str: ...

    def set_note(self, name: str, value: str) -> None: ...


class NodeStore(Protocol):
    @property
    def identity(self) -> Identity: ...

    async def run(self, work: Callable[[NodeUnit], T]) -> T:
        """Returns when what `work` did is durable."""
        ...

    async def read(self, work: Callable[[NodeUnit], T]) -> T: ...

    def arriving(self) -> BinaryIO:
        """Where a content lies while it comes in."""
        ...

    def stage(self, arrived: BinaryIO) -> Content:
        """What came in completely; a large one is safe on disk. Waits for the disk."""
        ...

    def discard(self, content: Content) -> None:
        """Forget what was staged and no message holds; nothing happens to what one does."""
        ...

    async def close(self) -> None: ...
