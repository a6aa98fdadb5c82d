"""A broker ready to be measured: certificates, a directory copy and a configuration, in one folder.

No directory runs: the copy is put into the broker's store as a synchronisation would have done.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa

from gridpost.assembly.broker import pem_key
from gridpost.assembly.clock import SystemClock
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.delivery import Side
from gridpost.core.enrolment import Enrolment, EnrolmentState, Home
from gridpost.core.identifiers import ComponentCode, new_message_id
from gridpost.core.journal import TransferRow
from gridpost.core.message_path import Restriction
from gridpost.core.ports import DirectoryClientWork
from gridpost.core.queues import Put, Queued
from gridpost.core.refusal import Refusal
from gridpost.core.registration import RegistrationRequest
from gridpost.core.synchronisation import Subsystem, content_id
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.keys.rsa_operations import generate, sign, to_pkcs8
from gridpost.stores.sqlite.queues import QueueClientStore, QueueSettings, SqliteQueueStore
from gridpost.transports.amqp10 import TlsCredentials
from gridpost.wire.seal import STANDARD
from gridpost.wire.x509 import (
    CaRequest,
    Issuer,
    Validity,
    build_root_ca,
    integrated_ca_name,
    issue,
    issue_integrated_ca,
    public_key_bytes,
    read_certificate,
    to_pem,
)

BROKER, SENDER, RECEIVER, HOME = "B1", "E1", "E2", "CD-1"
CONTACT = Contact("Bench", "Nobody", "bench@grid.example", "0")


@dataclass(frozen=True)
class Member:
    certificate: Certificate
    key: rsa.RSAPrivateKey


class Site:
    """Makes everything once; brokers are started from it as often as wanted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        now = datetime.now(UTC)
        validity = Validity(now - timedelta(days=1), now + timedelta(days=30))
        root_key, ca_key = generate(), generate()
        self.root = build_root_ca(
            "bench root",
            _spki(root_key),
            lambda data: sign(root_key, data, "SHA-512", STANDARD),
            validity,
        )
        self.authority = issue_integrated_ca(
            CaRequest(integrated_ca_name(ComponentCode(HOME)), "", _spki(ca_key)),
            Issuer(self.root, lambda data: sign(root_key, data, "SHA-512", STANDARD)),
            validity,
        )
        issuer = Issuer(self.authority, lambda data: sign(ca_key, data, "SHA-512", STANDARD))
        self.members = {
            code: _member(code, issuer, validity) for code in (BROKER, SENDER, RECEIVER, HOME)
        }
        own = self.members[BROKER]
        (folder / "chain.pem").write_bytes(to_pem(own.certificate.der, self.authority))
        (folder / "key.pem").write_bytes(pem_key(to_pkcs8(own.key)))
        (folder / "root.pem").write_bytes(to_pem(self.root))

    def credentials(self, code: str) -> TlsCredentials:
        member = self.members[code]
        return TlsCredentials(
            chain_pem=to_pem(member.certificate.der, self.authority),
            key_pem=pem_key(to_pkcs8(member.key)),
            roots_pem=to_pem(self.root),
        )

    def prepare(self, name: str, preload: int = 0) -> Path:
        """A broker's folder with a store that knows the directory; its configuration file."""
        home = self.folder / name
        home.mkdir(mode=0o700)
        ring = FileKeyring(home / "keys")
        own = self.members[BROKER]
        ring.import_key(to_pkcs8(own.key))
        ring.install(own.certificate)
        asyncio.run(self._fill(home, preload))
        file = self.folder / f"{name}.toml"
        contact = "".join(
            f"{key} = {json.dumps(getattr(CONTACT, key))}\n"
            for key in ("organization", "person", "email", "phone")
        )
        file.write_text(
            f'component = "broker"\ncode = "{BROKER}"\nhome = "{name}"\n[contact]\n{contact}'
            '[server]\nhost = "127.0.0.1"\nport = 0\nurls = ["amqps://localhost:5671"]\n'
            "[operations]\nport = 0\n"
        )
        return file

    async def _fill(self, home: Path, preload: int) -> None:
        settings = QueueSettings(max_group=2_000)
        store = SqliteQueueStore.open(home / "store", BROKER, SystemClock(), settings)
        subsystem, enrolment = self._subsystem(), self._enrolment()

        def save(work: DirectoryClientWork) -> None:
            work.directory_copy.save([subsystem], [HOME])
            work.enrolment.save(enrolment)

        await QueueClientStore(store).run(save)
        await _preload(store, preload)
        await store.close()

    def _subsystem(self) -> Subsystem:
        authority = read_certificate(self.authority, CertificateKind.INTEGRATED_CA)
        kinds = {BROKER: ComponentType.BROKER, HOME: ComponentType.COMPONENT_DIRECTORY}
        components = tuple(
            Component(
                ComponentCode(code),
                kinds.get(code, ComponentType.ENDPOINT),
                CONTACT,
                ComponentCode(HOME),
                Implementation("2"),
                certificates=(
                    (member.certificate, authority) if code == HOME else (member.certificate,)
                ),
                restriction=Restriction() if code == BROKER else None,
            )
            for code, member in self.members.items()
        )
        return Subsystem(ComponentCode(HOME), content_id(components), components)

    def _enrolment(self) -> Enrolment:
        authority = read_certificate(self.authority, CertificateKind.INTEGRATED_CA)
        home = Home(
            ComponentCode(HOME),
            ("https://127.0.0.1:9",),
            (self.members[HOME].certificate, authority),
            (self.root,),
        )
        return Enrolment(
            EnrolmentState.INSTALLED,
            home,
            RegistrationRequest(CONTACT, ComponentCode(BROKER), ()),
            False,
            self.members[BROKER].certificate,
        )


@dataclass(frozen=True)
class Running:
    port: int
    process: int

    def cpu_seconds(self) -> float:
        from gridpost.bench._rabbitmq import cpu_seconds

        return cpu_seconds(self.process)

    def resident(self) -> int:
        """Octets of memory at this moment."""
        for line in Path(f"/proc/{self.process}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0


@contextmanager
def running(file: Path) -> Iterator[Running]:
    command = [sys.executable, "-c", "from gridpost.cli import main; main()"]
    process = subprocess.Popen(
        [*command, "broker", "run", "--config", str(file)],
        stderr=subprocess.PIPE,
        env={k: v for k, v in os.environ.items() if not k.startswith("GRIDPOST_")},
    )
    assert process.stderr is not None
    drain: subprocess.Popen[bytes] | None = None
    try:
        for line in process.stderr:
            said = json.loads(line) if line.startswith(b"{") else {}
            if said.get("event") == "listening":
                break
        else:
            raise RuntimeError("the broker did not start")
        # Nobody reads the log from here on: it must not fill a pipe.
        with open(file.with_suffix(".log"), "wb") as rest:
            drain = subprocess.Popen(["cat"], stdin=process.stderr, stdout=rest)
        yield Running(said["port"], process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
        process.stderr.close()
        if drain is not None:
            drain.wait()


async def _preload(store: SqliteQueueStore, count: int) -> None:
    body = b"\x00\x53\x77\xb0" + (1000).to_bytes(4, "big") + bytes(1000)
    now = datetime.now(UTC)
    expires = now + timedelta(days=1)
    loop = asyncio.get_running_loop()
    for begin in range(0, count, 1_000):
        left = min(1_000, count - begin)
        done: asyncio.Future[Refusal | None] = loop.create_future()
        puts = []
        for _ in range(left):
            name = new_message_id()
            row = TransferRow(
                now, Side.RECEIVED, name, SENDER, RECEIVER, "A01", SENDER, len(body), "accepted"
            )
            message = Queued(0, name, SENDER, "A01", now, expires, len(body), content=body)
            puts.append(Put(RECEIVER, message, row))
        store.submit(puts, done.set_result)
        refusal = await done
        if refusal is not None:
            raise refusal


def _member(code: str, issuer: Issuer, validity: Validity) -> Member:
    key = generate()
    der = issue(CertificateKind.AUTHENTICATION, code, _spki(key), issuer, validity)
    return Member(read_certificate(der, CertificateKind.AUTHENTICATION), key)


def _spki(key: rsa.RSAPrivateKey) -> bytes:
    return public_key_bytes(key.public_key())
