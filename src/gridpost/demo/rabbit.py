"""The RabbitMQ that the demonstration starts for itself, with an operator's CA for whoever uses it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from gridpost.assembly.broker import pem_key
from gridpost.assembly.root_ca import ROOT_FILE, create_root
from gridpost.bench._rabbitmq import Node, NodePlan, what_is_missing
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.files import FileKeyring
from gridpost.stores.keys.rsa_operations import generate, to_pkcs8
from gridpost.wire.x509 import (
    Issuer,
    Validity,
    from_pem,
    issue_tls,
    public_key,
    public_key_bytes,
    to_pem,
)

__all__ = ["DemoRabbit", "what_is_missing"]

YEARS = timedelta(days=3650)
SERVER_NAMES = ("localhost", "127.0.0.1")


class DemoRabbit:
    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"amqps://localhost:{port}"
        self._port = port
        self._node: Node | None = None

    @property
    def authority(self) -> Path:
        return self.folder / "authority"

    @property
    def roots(self) -> Path:
        return self.authority / ROOT_FILE

    @property
    def server_certificate(self) -> str:
        """For whoever serves on this machine beside it, as configuration writes it."""
        chain, key = self.folder / "chain.pem", self.folder / "key.pem"
        return f'certificate = "{chain}"\nkey = "{key}"\n'

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def prepare(self, users: Sequence[str], at: datetime) -> None:
        """Certificates of the server and of users, unless an earlier start has made them."""
        if self.roots.exists():
            return
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_root(self.authority, "Demonstration CA", "", YEARS, at, None)
        (root,) = from_pem(self.roots.read_bytes())
        ring = FileKeyring(self.authority / "keys", None)
        issuer = Issuer(root, ring.sign_function(public_key_bytes(public_key(root))))
        validity = Validity.starting(at, YEARS)
        (self.folder / "root.pem").write_bytes(to_pem(root))
        self._certify(issuer, validity, "chain", "key", SERVER_NAMES[0], SERVER_NAMES)
        for user in users:
            self._certify(issuer, validity, user, f"{user}.key", user, ())

    def certificate(self, user: str) -> tuple[Path, Path]:
        return self.folder / f"{user}.pem", self.folder / f"{user}.key.pem"

    async def start(self, users: Sequence[str], host: str, more: Mapping[str, Any]) -> None:
        """`users` may do everything in their virtual host; `more` are definitions of others."""
        # What is worth keeping is in the ledgers of the components.
        shutil.rmtree(self.folder / "data", ignore_errors=True)
        plan = NodePlan(
            self.folder, users=users, virtual_hosts=(host,), definitions=more, port=self._port
        )
        self._node = Node(plan)
        try:
            await asyncio.to_thread(self._node.start)
        except Refusal as refusal:
            raise Refusal(Rule.INTERNAL, refusal.message, f"log {self._last_line()}") from None

    async def stop(self) -> None:
        if self._node is not None:
            await asyncio.to_thread(self._node.kill)

    def _last_line(self) -> str:
        logs = sorted(self.log.glob("*.log"), key=lambda file: file.stat().st_mtime)
        if not logs:
            return f"{self.log} is empty"
        lines = logs[-1].read_text(encoding="utf-8", errors="replace").splitlines()
        return f"{logs[-1]}, line {len(lines)}: {lines[-1] if lines else ''}"

    def _certify(
        self,
        issuer: Issuer,
        validity: Validity,
        chain: str,
        key_name: str,
        name: str,
        server_names: tuple[str, ...],
    ) -> None:
        key = generate(2048)
        spki = public_key_bytes(key.public_key())
        issued = issue_tls(name, spki, issuer, validity, server_names=server_names)
        file = self.folder / f"{key_name}.pem"
        file.touch(mode=0o600)
        file.write_bytes(pem_key(to_pkcs8(key)))
        (self.folder / f"{chain}.pem").write_bytes(to_pem(issued))
