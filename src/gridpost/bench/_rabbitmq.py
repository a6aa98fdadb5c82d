"""A private RabbitMQ node as a yardstick: its own name, folders, ports and cookie, on loopback only.

Debian's command on the PATH insists on the system's user and instance, so the package's own server
script is run instead.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gridpost.core.refusal import Refusal, Rule

_SCRIPT = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
_START_SECONDS = 90
_PLUGINS = "[rabbitmq_amqp1_0, rabbitmq_auth_mechanism_ssl]."


@dataclass(frozen=True)
class Node:
    port: int
    group: int
    """Process group: the Erlang machine and its helpers."""

    def cpu_seconds(self) -> float:
        return sum(_cpu(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()
                   and _group(int(entry)) == self.group)  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def rabbitmq(folder: Path, queue: str, users: list[str]) -> Iterator[Node]:
    """`folder` holds chain.pem, key.pem and root.pem; `users` log in by their certificate."""
    if not _SCRIPT.exists():
        raise Refusal(Rule.USAGE, "rabbitmq-server is not installed: run make setup")
    port, name = free_port(), f"gridpost{os.getpid()}@localhost"
    (folder / "enabled_plugins").write_text(_PLUGINS)
    (folder / "definitions.json").write_text(_definitions(queue, users))
    (folder / "rabbitmq.conf").write_text(
        f"""
listeners.tcp = none
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {folder}/root.pem
ssl_options.certfile = {folder}/chain.pem
ssl_options.keyfile = {folder}/key.pem
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
ssl_options.depth = 2
ssl_cert_login_from = common_name
auth_mechanisms.1 = EXTERNAL
load_definitions = {folder}/definitions.json
log.file.level = warning
"""
    )
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "none"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
    }
    process = subprocess.Popen(
        [str(_SCRIPT)],
        env=environment,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait(process, port)
        yield Node(port, process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        _end_mapper(folder)


def _wait(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise Refusal(Rule.INTERNAL, "RabbitMQ did not start; its log is in the folder of the bench")


def _end_mapper(folder: Path) -> None:
    """Erlang's port mapper detaches itself: it is known by the home that only our node has."""
    home = f"HOME={folder}".encode()
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and home in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                os.kill(int(entry), signal.SIGTERM)
        except OSError:
            continue


def _definitions(queue: str, users: list[str]) -> str:
    return json.dumps(
        {
            "users": [{"name": u, "password_hash": "", "tags": ""} for u in users],
            "vhosts": [{"name": "/"}],
            "permissions": [
                {"user": u, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}
                for u in users
            ],
            "queues": [
                {"name": queue, "vhost": "/", "durable": True, "auto_delete": False,
                 "arguments": {}}
            ],
        }
    )  # fmt: skip


def _cpu(process: int) -> float:
    """User and system time of a process, in seconds; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _group(process: int) -> int:
    try:
        return os.getsid(process)
    except OSError:
        return -1
