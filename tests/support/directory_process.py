"""Component-directories as processes of their own, with real keys, real TLS and a real disk."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.assembly.root_ca import ROOT_FILE, create_root, sign_request
from gridpost.core.https import TlsCredentials
from gridpost.services.operations.administrators import hash_token
from gridpost.stores.keys import pkcs8
from gridpost.stores.keys.rsa_operations import from_pkcs8, to_pkcs8
from gridpost.transports.free_port import free_port
from gridpost.transports.https.tls import client_context
from gridpost.wire.directory import decode_bundle, decode_response, encode_request
from gridpost.wire.x509 import from_pem, to_pem
from support.component_directory import request_for
from support.pki import ENDPOINT_KINDS, TestComponent

SOURCE = Path(__file__).resolve().parents[2] / "src"
GRIDPOST = [sys.executable, "-c", "from gridpost.cli import main; main()"]
TOKEN = "token of the test"


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCE), "GRIDPOST_TOKEN": TOKEN, "COLUMNS": "200"}


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """The first true value; a condition that raises is not true yet."""
    end = time.monotonic() + seconds
    while True:
        with suppress(httpx.HTTPError, OSError):
            value = condition()
            if value:
                return value
        assert time.monotonic() < end, "this never became true"
        time.sleep(0.05)


class TestRoot:
    """The offline ROOT CA in a folder."""

    __test__ = False

    def __init__(self, home: Path) -> None:
        """A new one, unless the folder has one already."""
        self.home = home
        self.file = home / ROOT_FILE
        if not self.file.exists():
            lasting = timedelta(days=3650)
            create_root(home, "Test ROOT CA", "", lasting, datetime.now(UTC), None)

    @property
    def certificate(self) -> bytes:
        return from_pem(self.file.read_bytes())[0]

    def certify(self, keys: DirectoryKeys) -> None:
        request = keys.request().read_bytes()
        _, pem = sign_request(self.home, request, timedelta(days=1000), datetime.now(UTC), None)
        keys.install_authority(from_pem(pem)[0], datetime.now(UTC))


@dataclass
class Party:
    """A client with its key: a component, or the holder of an installation certificate."""

    chain: tuple[bytes, ...]
    private_key: bytes
    roots: tuple[bytes, ...]

    @property
    def context(self) -> ssl.SSLContext:
        return client_context(TlsCredentials(self.chain, self.private_key, self.roots))

    def files(self, folder: Path) -> tuple[Path, Path, Path]:
        """Chain, key and roots as PEM files, for programs that are not ours."""
        chain, key, roots = (folder / name for name in ("chain.pem", "key.pem", "roots.pem"))
        chain.write_bytes(to_pem(*self.chain))
        key.write_bytes(pkcs8.write(from_pkcs8(self.private_key), None))
        roots.write_bytes(to_pem(*self.roots))
        return chain, key, roots


class DirectoryProcess:
    """One component-directory; `start` and `kill` as often as a test likes."""

    def __init__(
        self, home: Path, code: str, root: TestRoot, *, certified: bool = True, **options: Any
    ) -> None:
        self.code = code
        self.home = home
        self.root = root
        self.roots = [root]
        self.port = free_port()
        self.administration_port = free_port()
        self.options = options
        self.process: subprocess.Popen[str] | None = None
        self.log: list[str] = []
        home.mkdir(parents=True)
        self.file = home / "directory.toml"
        self.peers: list[DirectoryProcess] = []
        self.write()
        if certified:
            root.certify(DirectoryKeys(read_directory_configuration(self.file)))

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def write(self) -> None:
        sections: dict[str, dict[str, Any]] = {
            "contact": {"organization": "O", "person": "P", "email": "e@x.example", "phone": "1"},
            "server": {"host": "127.0.0.1", "port": self.port, "urls": [self.url]},
            "synchronisation": {"cycle": "300ms", "ttl": "1h"},
            "administration": {"port": self.administration_port},
            "administration.tokens": {"alice": self._hash()},
        }
        for name, values in self.options.items():
            sections.setdefault(name, {}).update(values)
        lines = [
            'component = "component-directory"',
            f'code = "{self.code}"',
            'home = "data"',
            f"roots = {json.dumps([str(root.file) for root in self.roots])}",
        ]
        if "postgres" in self.options:
            lines.append('store = "postgres"')
        for name, values in sections.items():
            lines.append(f"[{name}]")
            lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
        for peer in self.peers:
            lines += [
                "[[synchronisation.peers]]",
                f'code = "{peer.code}"',
                f'urls = ["{peer.url}"]',
            ]
        self.file.write_text("\n".join(lines) + "\n")

    def rewrite(self) -> None:
        """A changed configuration, and nothing goes on before it was taken over."""
        before = sum("configuration reloaded" in line for line in list(self.log))
        self.write()
        wait_for(lambda: sum("configuration reloaded" in line for line in list(self.log)) > before)

    def _hash(self) -> str:
        if not hasattr(self, "_hashed"):
            self._hashed = hash_token(TOKEN)
        return self._hashed

    def start(self) -> DirectoryProcess:
        self.spawn()
        # Machines are busy at times: only a process that has ended cannot answer any more.
        wait_for(self._answers, 240)
        return self

    def spawn(self) -> None:
        """Without waiting until it serves."""
        self.process = subprocess.Popen(
            [*GRIDPOST, "directory", "run", "--config", str(self.file)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment(),
            text=True,
        )
        threading.Thread(target=self._collect, args=(self.process,), daemon=True).start()

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            self.log += process.stderr

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "".join(self.log)
        return httpx.get(f"http://127.0.0.1:{self.administration_port}/health").is_success

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def administer(self, method: str, path: str, body: object = None) -> Any:
        response = httpx.request(
            method,
            f"http://127.0.0.1:{self.administration_port}/admin/v1{path}",
            json=body,
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=60,
        )
        assert response.is_success, response.text
        return response.json()

    def codes(self) -> set[str]:
        return {c["code"] for c in self.administer("GET", "/components")["components"]}

    def content_ids(self) -> dict[str, str]:
        found = self.administer("GET", "/components")["subsystems"]
        return {s["component_directory"]: s["content_id"] for s in found}

    def request(
        self,
        party: Party,
        method: str,
        path: str,
        body: bytes | None = None,
        media_type: str = "application/xml",
    ) -> httpx.Response:
        headers = {} if body is None else {"content-type": media_type}
        with httpx.Client(verify=party.context, trust_env=False, timeout=60) as client:
            return client.request(method, self.url + path, content=body, headers=headers)

    def invite(self, code: str) -> Party:
        invited = self.administer("POST", "/invitations", {"code": code, "password": "pw"})
        bundle = decode_bundle(b64decode(invited["bundle"]))
        opened = bundle.open("pw")
        return Party((opened.certificate, *opened.issuers), opened.private_key, bundle.roots)

    def register(
        self, code: str, kinds: Sequence[Any] = ENDPOINT_KINDS, key_name: str = ""
    ) -> tuple[TestComponent, Party]:
        party = self.invite(code)
        request, keys = request_for(code, kinds, key_name=key_name)
        posted = self.request(party, "POST", "/api/v1/registrations", encode_request(request))
        assert posted.status_code == 201, posted.text
        location = posted.headers["location"]
        self.administer("POST", f"/registrations/{location.rpartition('/')[2]}/approve")
        answer = decode_response(self.request(party, "GET", location).content)
        component = TestComponent(request.code, answer.certificates, keys, party.chain[1])
        return component, self.party(component)

    def party(self, component: TestComponent, kind: Any = ENDPOINT_KINDS[0]) -> Party:
        return Party(
            (component.certificate(kind).der, component.issuer),
            to_pkcs8(component.keys[kind]),
            tuple(root.certificate for root in self.roots),
        )


@contextmanager
def running(*directories: DirectoryProcess) -> Iterator[None]:
    """All of them know each other and serve; none is left behind."""
    for directory in directories:
        directory.peers = [other for other in directories if other is not directory]
        directory.write()
    try:
        for directory in directories:
            directory.start()
        yield
    finally:
        for directory in directories:
            if directory.process is not None and directory.process.poll() is None:
                directory.kill()
