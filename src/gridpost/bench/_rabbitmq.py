"""A private RabbitMQ node: its own name, folders, ports and cookie, on loopback only.

Benches measure beside it, tests and the demo work with it. Debian's command on the PATH insists on
the system's user and instance, so the package's own server script is run instead.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.free_port import free_port

_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_START_SECONDS = 240


@dataclass(frozen=True)
class NodePlan:
    """What a node offers. `folder` must hold chain.pem, key.pem (its own) and root.pem."""

    folder: Path
    users: Sequence[str] = ()
    """Log in by the common name of their certificates (EXTERNAL)."""
    virtual_hosts: Sequence[str] = ("/",)
    permissions: Sequence[tuple[str, str, str]] | None = None
    """(user, virtual host, pattern of names); None: every user everything everywhere."""
    queues: Sequence[str] = ()
    """Durable classic queues of the first virtual host."""
    plugins: Sequence[str] = ("rabbitmq_auth_mechanism_ssl",)
    management: bool = False
    """The HTTP API, with TLS, for `administrator` with `password`."""
    administrator: str = "administrator"
    password: str = field(default_factory=lambda: uuid4().hex)
    settings: Sequence[str] = ()
    """More lines of rabbitmq.conf."""
    definitions: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """More users, virtual hosts and permissions, as RabbitMQ's definitions file has them."""
    port: int = 0
    """0: any that is free."""


def what_is_missing() -> str:
    """Empty: a node can be started here."""
    return "" if _SCRIPT.exists() else "rabbitmq-server is not installed: run make setup"


class Node:
    """A node that can be stopped, killed and started again on the same ports and data."""

    def __init__(self, plan: NodePlan) -> None:
        if missing := what_is_missing():
            raise Refusal(Rule.USAGE, missing)
        self.plan = plan
        self.port = plan.port or free_port()
        self.management_port = free_port() if plan.management else 0
        self._ports = (free_port(), free_port())
        self._name = f"gridpost-{uuid4().hex[:12]}@localhost"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"amqps://localhost:{self.port}"

    @property
    def group(self) -> int:
        """Process group: the Erlang machine and its helpers."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        folder = self.plan.folder
        plugins = [*self.plan.plugins, *(["rabbitmq_management"] if self.plan.management else [])]
        (folder / "enabled_plugins").write_text(f"[{', '.join(plugins)}].")
        (folder / "definitions.json").write_text(json.dumps(self._definitions()))
        (folder / "definitions.json").chmod(0o600)
        (folder / "rabbitmq.conf").write_text("\n".join(self._configuration()) + "\n")
        self._process = subprocess.Popen(
            [str(_SCRIPT)],
            env=self._environment(),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._wait()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """As a power failure would end it; data stay."""
        if self._process is not None:
            # One that could not start has ended by itself.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
            _end_mapper(self.plan.folder)

    def control(self, *words: str) -> str:
        """`rabbitmqctl` of this node; what it prints."""
        done = subprocess.run(
            [str(_SCRIPT.with_name("rabbitmqctl")), "--quiet", "--node", self._name, *words],
            env=self._environment(),
            cwd=self.plan.folder,
            capture_output=True,
            text=True,
            timeout=_START_SECONDS,
        )
        if done.returncode:
            raise Refusal(Rule.INTERNAL, f"rabbitmqctl {words[0]}: {done.stderr.strip()}")
        return done.stdout

    def cpu_seconds(self) -> float:
        return sum(
            cpu_seconds(int(entry))
            for entry in os.listdir("/proc")
            if entry.isdigit() and _session(int(entry)) == self.group
        )

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        ports = [self.port, *([self.management_port] if self.management_port else [])]
        while ports and time.monotonic() < deadline and self._process.poll() is None:
            with socket.socket() as probe:
                probe.settimeout(0.2)
                if probe.connect_ex(("127.0.0.1", ports[0])) == 0:
                    ports.pop(0)
                    continue
            time.sleep(0.1)
        if ports:
            raise Refusal(
                Rule.INTERNAL, f"RabbitMQ did not start; its log is in {self.plan.folder}/log"
            )

    def _configuration(self) -> list[str]:
        folder = self.plan.folder
        certificates = {
            "cacertfile": folder / "root.pem",
            "certfile": folder / "chain.pem",
            "keyfile": folder / "key.pem",
        }
        lines = [
            "listeners.tcp = none",
            f"listeners.ssl.1 = 127.0.0.1:{self.port}",
            *(f"ssl_options.{key} = {value}" for key, value in certificates.items()),
            "ssl_options.verify = verify_peer",
            "ssl_options.fail_if_no_peer_cert = true",
            "ssl_options.depth = 2",
            "ssl_cert_login_from = common_name",
            "auth_mechanisms.1 = EXTERNAL",
            f"load_definitions = {folder}/definitions.json",
            "log.file.level = warning",
            # A test machine may be nearly full; what a node does then has tests of its own.
            "disk_free_limit.absolute = 50MB",
        ]
        if self.plan.management:
            lines += [
                "management.ssl.ip = 127.0.0.1",
                f"management.ssl.port = {self.management_port}",
                *(f"management.ssl.{key} = {value}" for key, value in certificates.items()),
            ]
        return [*lines, *self.plan.settings]

    def _environment(self) -> dict[str, str]:
        folder, (distribution, mapper) = self.plan.folder, self._ports
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "RABBITMQ_NODENAME": self._name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(mapper),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _definitions(self) -> dict[str, Any]:
        plan = self.plan
        permissions = plan.permissions
        if permissions is None:
            permissions = [(user, host, ".*") for user in plan.users for host in plan.virtual_hosts]
        users: list[dict[str, Any]] = [
            {"name": user, "password_hash": "", "tags": ""} for user in plan.users
        ]
        granted = [
            {"user": user, "vhost": host, "configure": names, "write": names, "read": names}
            for user, host, names in permissions
        ]
        if plan.management:
            name = plan.administrator
            users.append({"name": name, "password": plan.password, "tags": "administrator"})
            granted += [
                {"user": name, "vhost": host, "configure": ".*", "write": ".*", "read": ".*"}
                for host in plan.virtual_hosts
            ]
        made: dict[str, list[Any]] = {
            "users": users,
            "vhosts": [{"name": host} for host in plan.virtual_hosts],
            "permissions": granted,
            "queues": [
                {"name": queue, "vhost": plan.virtual_hosts[0], "durable": True,
                 "auto_delete": False, "arguments": {}}
                for queue in plan.queues
            ],
        }  # fmt: skip
        return {
            name: [*made.get(name, ()), *plan.definitions.get(name, ())]
            for name in {**made, **plan.definitions}
        }


@contextmanager
def private_rabbitmq(plan: NodePlan) -> Iterator[Node]:
    node = Node(plan)
    node.start()
    try:
        yield node
    finally:
        node.kill()


def cpu_seconds(process: int) -> float:
    """User and system time of a process; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _end_mapper(folder: Path) -> None:
    """Erlang's port mapper detaches itself: it is known by the home that only our node has."""
    home = f"HOME={folder}".encode()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and home in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                os.kill(int(entry), signal.SIGTERM)
        except OSError:
            continue


def _session(process: int) -> int:
    try:
        return os.getsid(process)
    except OSError:
        return -1
