"""A component-directory with many components, and one of them as its client, in processes of their own.

The entries are put into the directory's store before it starts; everything behind that is as in
production: `gridpost directory run`, mutual TLS, and a client that keeps its copy in SQLite.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from gridpost.assembly.clock import SystemClock
from gridpost.assembly.directory import open_store
from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.logs import log_to_stderr
from gridpost.assembly.root_ca import ROOT_FILE, create_root, sign_request
from gridpost.bench._served import peak_memory
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.directory_ports import RegistryUnit
from gridpost.core.enrolment import Enrolment, EnrolmentState, Home
from gridpost.core.identifiers import ComponentCode
from gridpost.core.instant import Instant
from gridpost.core.ports import DirectoryClientWork
from gridpost.core.registration import RegistrationRequest
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.sqlite import SqliteStore
from gridpost.transports.free_port import free_port
from gridpost.transports.https import ClientTls, HttpsClient
from gridpost.wire.x509 import Issuer, Validity, from_pem, issue, read_certificate

HOME = ComponentCode("CD-1")
CLIENT = ComponentCode("E0")
CONTACT = Contact("Bench", "B", "b@bench.example", "1")
KINDS = (CertificateKind.AUTHENTICATION, CertificateKind.SIGNING, CertificateKind.ENCRYPTION)


def entry(code: str, issuer: Issuer, spki: bytes, at: datetime) -> Component:
    validity = Validity.starting(at, timedelta(days=100))
    return Component(
        ComponentCode(code),
        ComponentType.ENDPOINT,
        CONTACT,
        HOME,
        Implementation("2"),
        certificates=tuple(
            read_certificate(issue(kind, code, spki, issuer, validity), kind) for kind in KINDS
        ),
        created=Instant.of(at),
        modified=Instant.of(at),
    )


class DirectorySite:
    """The folders of a directory and of its client, filled."""

    def __init__(self, folder: Path, components: int) -> None:
        self.folder = folder
        at = datetime.now(UTC)
        create_root(folder / "ca", "bench root", "", timedelta(days=300), at, None)
        self.file = folder / "directory.toml"
        port = free_port()
        self.file.write_text(
            f'component = "component-directory"\ncode = "{HOME}"\nhome = "directory"\n'
            f'roots = ["ca/{ROOT_FILE}"]\n[contact]\norganization = "Bench"\nperson = "B"\n'
            'email = "b@bench.example"\nphone = "1"\n[server]\nhost = "127.0.0.1"\n'
            f'port = {port}\nurls = ["https://127.0.0.1:{port}"]\n[administration]\nport = 0\n'
        )
        configuration = read_directory_configuration(self.file)
        keys = DirectoryKeys(configuration)
        request = keys.request().read_bytes()
        _, pem = sign_request(folder / "ca", request, timedelta(days=200), at, None)
        keys.install_authority(from_pem(pem)[0], at)
        issuer = keys.issuers()[0]
        (folder / "client").mkdir(mode=0o700)
        ring = FileKeyring(folder / "client" / "keys")
        spki = ring.create_key()
        entries = [entry(f"E{n}", issuer, spki, at) for n in range(components)]
        for certificate in entries[0].certificates:
            if certificate.kind is CertificateKind.AUTHENTICATION:
                ring.install(certificate)
        asyncio.run(self._fill(entries))
        self._authority = issuer.certificate
        self._own = entries[0].certificates[0]
        self._root = configuration.trusted_roots()

    async def _fill(self, entries: list[Component]) -> None:
        store = open_store(read_directory_configuration(self.file))

        def fill(unit: RegistryUnit) -> None:
            for component in entries:
                unit.entries.put(component)

        await store.run(fill)
        await store.close()

    def enrol(self, port: int, directory: Certificate) -> None:
        """The client is a component that was registered with this directory."""
        authority = read_certificate(self._authority, CertificateKind.INTEGRATED_CA)
        home = Home(HOME, (f"https://127.0.0.1:{port}",), (directory, authority), self._root)
        enrolment = Enrolment(
            EnrolmentState.INSTALLED,
            home,
            RegistrationRequest(CONTACT, CLIENT, ()),
            False,
            self._own,
        )

        async def save() -> None:
            store = SqliteStore.open(self.folder / "client" / "store", CLIENT)

            def keep(work: DirectoryClientWork) -> None:
                work.enrolment.save(enrolment)

            await store.run(keep)
            await store.close()

        asyncio.run(save())

    def certificate(self) -> Certificate:
        """What the directory shows on its connections; it made it when it started."""
        keys = DirectoryKeys(read_directory_configuration(self.file))
        return keys.own[0]


def run_client(folder: Path, rounds: int) -> dict[str, float]:
    """In a process of its own, so that its memory is that of a client and of nothing else."""
    program = (
        "import sys; from gridpost.bench._directory_site import client_main; "
        "client_main(sys.argv[1], int(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder), str(rounds)],
        check=True,
        capture_output=True,
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def client_main(folder: str, rounds: int) -> None:
    log_to_stderr(CLIENT)
    print(json.dumps(asyncio.run(_synchronise(Path(folder) / "client", rounds))))


async def _synchronise(home: Path, rounds: int) -> dict[str, float]:
    store = SqliteStore.open(home / "store", CLIENT)
    client = DirectoryClient(
        CLIENT,
        ComponentType.ENDPOINT,
        store=store,
        keys=FileKeyring(home / "keys"),
        clock=SystemClock(),
        callers=lambda credentials: HttpsClient(ClientTls(credentials)),
    )
    await client.open()
    start, spent = time.perf_counter(), time.process_time()
    await client.synchroniser.round()
    full, spent = time.perf_counter() - start, time.process_time() - spent
    unchanged = []
    for _ in range(rounds):
        start = time.perf_counter()
        await client.synchroniser.round()
        unchanged.append(time.perf_counter() - start)
    known = sum(len(s.components) for s in client.directory().subsystems.values())
    await store.close()
    return {
        "components": known,
        "full_s": full,
        "full_cpu_s": spent,
        "unchanged_s": statistics.median(unchanged) if unchanged else 0.0,
        "peak_mb": peak_memory(),
    }
