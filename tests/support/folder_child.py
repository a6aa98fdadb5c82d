"""One endpoint in this process, with a store and shared folders on disk.

    python -m support.folder_child out|in FOLDER

`out`: a file in OUT becomes a message. `in`: a received message becomes a file in IN. For tests that
look at the system calls.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gridpost.core.channels import Binding, Bindings, Channel, Receiving
from gridpost.core.identifiers import MessageTypePattern
from gridpost.core.ports import Store
from gridpost.services.endpoint.folders import FolderHealth, FolderSettings, InPlace
from gridpost.services.endpoint.folders_in import FolderIn
from gridpost.services.endpoint.folders_log import FolderLog
from gridpost.services.endpoint.folders_out import FolderOut
from gridpost.services.endpoint.users import User, Users
from gridpost.stores.folders import DiskInFolder, DiskLogFolder, DiskOutFolder
from gridpost.stores.sqlite import SqliteStore
from support.post import TestEndpoint, World

ANY = MessageTypePattern("*")


class FolderEndpoint:
    """The three folder duties of one endpoint of a test world."""

    def __init__(
        self, one: TestEndpoint, folder: Path, store: Store | None = None, retry: float = 0.01
    ) -> None:
        if store is not None:
            one.context.store = store
        self.one = one
        self.out, self.errors = folder / "OUT", folder / "OUT_ERROR"
        self.logs, self.into = folder / "OUT_LOG", folder / "IN"
        for path in (self.out, self.errors, self.logs, self.into):
            path.mkdir(parents=True, exist_ok=True)
        self.pool = ThreadPoolExecutor(4)
        users = Users(
            [User("folder", send=(ANY,), receive=(ANY,), channels=frozenset({Channel.FOLDER}))],
            Bindings([Binding(ANY, Receiving.FOLDER)]),
        )
        self.health = FolderHealth(one.context.clock)
        in_folder = DiskInFolder(self.into, self.pool)
        settings = FolderSettings(retry_seconds=retry, default=InPlace(in_folder, "xml"))
        log_folder = DiskLogFolder(self.logs, self.pool)
        out_folder = DiskOutFolder(self.out, self.errors, self.pool)
        self.sending = FolderOut(
            one.context, users, one.submission, out_folder, log_folder, self.health, settings
        )
        self.logging = FolderLog(one.context, log_folder, self.health, settings)
        self.receiving = FolderIn(one.context, users, one.handover, self.health, settings)

    def put(self, name: str, content: str = "document") -> Path:
        (self.out / "writing.tmp").write_text(content)
        return (self.out / "writing.tmp").rename(self.out / name)


async def main(what: str, folder: Path) -> None:
    world = World()
    store = SqliteStore.open(folder / "store", "E1")
    files = FolderEndpoint(world["E1"], folder, store)
    if what == "out":
        files.put("APP_E2_F01_id.xml")
        await files.sending.round()
        await files.logging.round()
    else:
        await world["E2"].send("E1", b"document")
        await world.carry()
        await files.receiving.round()
    await store.close()
    files.pool.shutdown()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
