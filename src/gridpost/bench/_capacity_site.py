"""What the bench of capacity works with: certificates, users, a configuration, and load on the broker."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from gridpost.assembly.broker import pem_key
from gridpost.core.amqp091 import Channel, Incoming, Properties
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.rsa_operations import generate, sign, to_pkcs8
from gridpost.transports.amqp091 import Amqp091Client, Amqp091Tls
from gridpost.transports.free_port import free_port
from gridpost.wire.cmm import CONTENT_TYPE, Names
from gridpost.wire.seal.registry import STANDARD
from gridpost.wire.x509 import Issuer, Validity, build_root_ca, issue_tls, public_key_bytes, to_pem

SERVICE = "cmm-service"
OUT_AREA, IN_AREA = "10YDE-EON------1", "10YDK-1--------W"
GROUP = "11XEEX-INTRA---D"
CLIENTS, SUBSCRIBERS = 50, 200
NAMES = Names()


def client_name(number: int) -> str:
    return f"client{number}"


def subscriber_name(number: int) -> str:
    return f"subscriber{number}"


def users() -> list[str]:
    return [
        SERVICE,
        *map(client_name, range(CLIENTS)),
        *map(subscriber_name, range(SUBSCRIBERS)),
    ]


def write_certificates(folder: Path) -> None:
    """chain.pem, key.pem, root.pem of the broker, and one certificate for each user."""
    now = datetime.now(UTC)
    validity = Validity.starting(now, timedelta(days=2))
    root_key, key = generate(2048), generate(2048)
    spki = public_key_bytes(key.public_key())
    root = build_root_ca(
        "Bench CA",
        public_key_bytes(root_key.public_key()),
        lambda data: sign(root_key, data, "SHA-512", STANDARD),
        Validity.starting(now, timedelta(days=3)),
    )
    issuer = Issuer(root, lambda data: sign(root_key, data, "SHA-512", STANDARD))
    (folder / "root.pem").write_bytes(to_pem(root))
    (folder / "key.pem").touch(mode=0o600)
    (folder / "key.pem").write_bytes(pem_key(to_pkcs8(key)))
    names = ("localhost", "127.0.0.1")
    (folder / "chain.pem").write_bytes(
        to_pem(issue_tls("localhost", spki, issuer, validity, server_names=names))
    )
    for user in users():
        (folder / f"{user}.pem").write_bytes(to_pem(issue_tls(user, spki, issuer, validity)))


def context(folder: Path, user: str) -> ssl.SSLContext:
    return Amqp091Tls(folder / "root.pem", folder / f"{user}.pem", folder / "key.pem").context()


def rabbit(folder: Path, url: str, user: str) -> Amqp091Client:
    return Amqp091Client(
        [url], virtual_host="/", tls=lambda: context(folder, user), heartbeat=60, timeout=60
    )


def write_configuration(folder: Path, url: str, prefetch: int) -> tuple[Path, int]:
    port = free_port()
    people = "\n".join(
        f'[[users]]\nname = "{name}"\nroles = ["explicit-participant"]\n'
        f'balancing_groups = ["{GROUP}"]\nborders = ["DE-DK"]'
        for name in users()[1:]
    )
    file = folder / "capacity.toml"
    file.write_text(
        f"""component = "capacity"
code = "CMM-BENCH"
home = "home"
zone = "Europe/Berlin"

[rabbitmq]
urls = ["{url}"]
virtual_host = "/"
user = "{SERVICE}"
roots = "root.pem"
certificate = "{SERVICE}.pem"
key = "key.pem"

[limits]
requests = 100000000
prefetch = {prefetch}

[queues]
request_ttl = "60s"
expires = "600s"

[operations]
port = {port}

[[balancing_groups]]
eic = "{GROUP}"

[[borders]]
name = "DE-DK"
interconnectors = [["{OUT_AREA}", "{IN_AREA}"]]
opening_days = 30

{people}
"""
    )
    return file, port


@contextmanager
def process(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / f"{name}.log").open("wb") as log:
        started = subprocess.Popen([sys.executable, *arguments], stderr=log, stdout=log)
    try:
        yield started
    finally:
        started.terminate()
        try:
            started.wait(30)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def wait_for_line(folder: Path, name: str, text: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if text in (folder / f"{name}.log").read_text(errors="replace"):
            return
        time.sleep(0.1)
    raise Refusal(Rule.INTERNAL, f"{name} did not start: see its log in {folder}")


class LoadClient:
    """Publishes a body that was made before, and waits for whatever comes back under its id."""

    def __init__(self, user: str, channel: Channel) -> None:
        self._user = user
        self._channel = channel
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    def take(self, incoming: Incoming) -> None:
        future = self._waiting.pop(incoming.properties.correlation_id or "", None)
        if future is not None and not future.done():
            future.set_result(incoming.body)

    async def ask(self, body: bytes) -> bytes:
        name = uuid4().hex
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[name] = future
        await self._channel.publish(
            body,
            Properties(content_type=CONTENT_TYPE, persistent=False, correlation_id=name),
            exchange=NAMES.request(self._user),
            routing_key="cmm.request.management",
        )
        return await future


async def load_clients(
    stack: AsyncExitStack, folder: Path, url: str, *, login: bool
) -> list[LoadClient]:
    clients = []
    for number in range(CLIENTS):
        user = client_name(number)
        connection = await rabbit(folder, url, user).connect()
        stack.push_async_callback(connection.close)
        client = LoadClient(user, await connection.channel())
        # Nobody subscribes: of a border that there is not, no queue is bound to anything.
        body = b'<Login arguments="X_Border:none"/>'
        asking = asyncio.create_task(client.ask(body)) if login else None
        while True:
            channel = await connection.channel(confirms=False)
            try:
                await channel.consume(NAMES.response_queue(user), client.take, no_ack=True)
                break
            except Refusal as refusal:
                if refusal.rule is not Rule.AMQP091_NOT_FOUND:
                    raise
                await asyncio.sleep(0.05)
        if asking is not None:
            await asking
        clients.append(client)
    return clients


def main() -> None:
    """`python -m gridpost.bench._capacity_site FOLDER URL`: the subscribers, in a process of their own."""
    # They stand for other machines: what they cost here must not be what the service waits for.
    os.nice(10)
    folder, url = Path(sys.argv[1]), sys.argv[2]
    asyncio.run(_subscribe(folder, url))


async def _subscribe(folder: Path, url: str) -> None:
    received = 0

    def take(_: Incoming) -> None:
        nonlocal received
        received += 1

    async with AsyncExitStack() as stack:
        for number in range(SUBSCRIBERS):
            user = subscriber_name(number)
            connection = await rabbit(folder, url, user).connect()
            stack.push_async_callback(connection.close)
            client = LoadClient(user, await connection.channel())
            asking = asyncio.create_task(client.ask(b"<Login/>"))
            while True:
                channel = await connection.channel(confirms=False)
                try:
                    await channel.consume(NAMES.response_queue(user), client.take, no_ack=True)
                    break
                except Refusal:
                    await asyncio.sleep(0.05)
            await asking
            await channel.consume(NAMES.broadcast_queue(user), take, no_ack=True)
        print("subscribed", flush=True)
        counts = folder / "received.json"
        while True:
            await asyncio.sleep(0.25)
            part = counts.with_suffix(".part")
            part.write_text(json.dumps({"received": received, "at": time.time()}))
            os.replace(part, counts)


if __name__ == "__main__":
    main()
