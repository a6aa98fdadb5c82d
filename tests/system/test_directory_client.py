"""A component and its component-directory, both real, over TLS: from the installation bundle to revocation.

The component keeps its keys in files and everything else in SQLite, as in operation.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from gridpost.assembly.installation import packer
from gridpost.core.certificate import CertificateKind, of_kind
from gridpost.core.component import ComponentType
from gridpost.core.enrolment import EnrolmentState
from gridpost.core.own_entry import same_data
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import RegistrationStatus
from gridpost.services.component_directory.settings import Extensions
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.sqlite import SqliteStore
from gridpost.transports.https import ClientTls, HttpsClient, ServerTls, serve
from gridpost.wire.directory import decode_bundle
from support.builders import CONTACT
from support.child import environment
from support.component_directory import TestDirectory
from support.directory_client import QUICK, Machine, both
from support.https import credentials, live_pki

PASSWORD = "told by telephone"


class Front:
    """Takes the port first, so that the directory knows its URL from the beginning."""

    def __init__(self) -> None:
        self.directory: TestDirectory | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.directory is not None:
            await self.directory.api(scope, receive, send)


@asynccontextmanager
async def running(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[TestDirectory]:
    monkeypatch.setattr("support.component_directory.TestPki", live_pki)
    own = live_pki().component("CD-1", [CertificateKind.AUTHENTICATION])
    front = Front()
    async with serve(front, "127.0.0.1", 0, ServerTls(lambda: credentials(own))) as server:
        directory = TestDirectory(clock=machine.clock, extensions=Extensions.AUTOMATIC)  # type: ignore[arg-type]
        settings = replace(directory.settings, urls=(f"https://127.0.0.1:{server.port}",))
        directory.settings = directory.publication.settings = settings  # type: ignore[misc]
        directory.own = own
        front.directory = await directory.started()
        yield directory


@asynccontextmanager
async def component(machine: Machine, home: Path) -> AsyncIterator[DirectoryClient]:
    keys = FileKeyring(home / "keys", b"passphrase")
    store = SqliteStore.open(home / "store", machine.code)
    client = DirectoryClient(
        machine.code,
        machine.kind,
        store=store,
        keys=keys,
        clock=machine.clock,
        callers=lambda shown: HttpsClient(ClientTls(shown)),
        settings=QUICK,
    )
    try:
        await client.open()
        yield client
    finally:
        await store.close()


@both("503-8.3.2-a")
async def test_a_component_joins_lives_with_and_leaves_a_real_directory(
    kind: ComponentType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(kind)
    async with running(machine, monkeypatch) as directory:
        kit = await directory.office.invite(machine.code, by="alice")
        pack = packer(directory.publication, lambda: credentials(directory.own))
        file = pack(kit, PASSWORD)

        async with component(machine, tmp_path) as client:
            await client.enroller.register(decode_bundle(file), PASSWORD, CONTACT, by="bob")
            await client.enroller.step()
            (filed,) = await directory.store.read(
                lambda unit: unit.registrations.search(RegistrationStatus.PENDING, 10)
            )
        await directory.office.approve(filed.registration_id, by="alice")

        # The process was restarted while the administrator decided.
        async with component(machine, tmp_path) as client:
            assert (await client.enroller.run()).state is EnrolmentState.INSTALLED
            await client.synchroniser.round()
            entry = client.directory().find(machine.code, machine.clock.now())
            assert entry is not None
            (published,) = of_kind(entry.certificates, CertificateKind.AUTHENTICATION)
            assert client.tls().chain == (published.der, directory.pki.integrated_ca)

            await client.configuration.change(machine.component(phone="2"), by="bob")
            await client.configuration.push()
            held = await directory.publication.find(machine.code)
            assert held is not None
            assert same_data(held, machine.component(phone="2"))

            await client.enroller.renew(by="bob")
            assert (await client.enroller.run()).state is EnrolmentState.INSTALLED
            assert client.tls().chain[0] == published.der
            await client.synchroniser.round()
            assert client.tls().chain[0] != published.der
            await client.synchroniser.round()

            await directory.office.revoke(machine.code, "stolen machine", by="alice")
            with pytest.raises(Refusal) as caught:
                await client.synchroniser.round()
            assert caught.value.rule is Rule.ACCESS_DENIED


WRITER = """
import asyncio, sys
from pathlib import Path
from gridpost.core.synchronisation import Directory, Merge
from gridpost.services.directory_client.local_copy import LocalCopy
from gridpost.stores.sqlite import SqliteStore
from support.builders import NOW, endpoint, subsystem

async def main():
    store = SqliteStore.open(Path(sys.argv[1]), sys.argv[2])
    copy = LocalCopy(store)
    number = 0
    while True:
        number += 1
        one = subsystem(*(endpoint(f"A{number}-{n}") for n in range(20)))
        two = subsystem(*(endpoint(f"B{number}-{n}") for n in range(20)), home="CD-2")
        merge = Merge(Directory.of([one, two]), frozenset({"CD-1", "CD-2"}))
        await copy.take(merge, NOW)
        print(number, flush=True)

asyncio.run(main())
"""


@both("503-7.1-b")
async def test_a_copy_that_is_killed_while_it_is_written_is_old_or_new_and_never_a_mixture(
    kind: ComponentType, tmp_path: Path
) -> None:
    code = Machine(kind).code
    for wait in (1, 3, 7):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(tmp_path / "store"), code,
            stdout=asyncio.subprocess.PIPE, env=environment(),
        )  # fmt: skip
        assert process.stdout is not None
        for _ in range(wait):
            last = int(await asyncio.wait_for(process.stdout.readline(), 60))
        process.send_signal(signal.SIGKILL)
        await process.wait()
        store = SqliteStore.open(tmp_path / "store", code)
        subsystems = await store.read(lambda work: list(work.directory_copy.load()))
        await store.close()
        numbers = {c.code[1:].partition("-")[0] for s in subsystems for c in s.components}
        assert len(numbers) == 1
        assert int(numbers.pop()) >= last
        assert [len(s.components) for s in subsystems] == [20, 20]
