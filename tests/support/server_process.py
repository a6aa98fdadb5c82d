"""An AMQP server in a process of its own, so that its memory can be measured and a crash be seen."""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from gridpost.transports.amqp10 import AmqpLimits, AmqpServer, TlsCredentials
from support.authority import Clock
from support.memory_broker import MemoryBroker

USER, PASSWORD = "application", "s3cret"


@dataclass(frozen=True)
class State:
    """What the server process says of itself."""

    connections: int
    deliveries: int
    queued: int
    resident: int
    """Octets, now."""
    peak: int
    cpu: float


@dataclass
class ServerProcess:
    process: BaseProcess
    tls_port: int
    plain_port: int
    _pipe: Connection

    def state(self) -> State:
        self._pipe.send("state")
        if not self._pipe.poll(60):
            raise TimeoutError("the server does not answer")
        state: State = self._pipe.recv()
        return state


@contextmanager
def server_process(
    own: TlsCredentials, limits: AmqpLimits, *, keep: int = 1_000_000
) -> Iterator[ServerProcess]:
    """Messages beyond `keep` in a queue are accepted and thrown away."""
    # Not fork: the child would inherit the memory that is to be measured.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_main, args=(own, limits, keep, there), daemon=True)
    process.start()
    try:
        if not here.poll(60):
            raise TimeoutError("the server does not start")
        yield ServerProcess(process, *here.recv(), here)
    finally:
        if process.is_alive():
            here.send("stop")
            process.join(60)
        if process.is_alive():
            process.kill()
        process.join()


def _main(own: TlsCredentials, limits: AmqpLimits, keep: int, pipe: Any) -> None:
    async def check(user: str, password: str) -> bool:
        return (user, password) == (USER, PASSWORD)

    # One descriptor per connection; the usual 1,024 are too few for tests of many.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    broker = MemoryBroker(keep=keep)
    server: AmqpServer

    def state() -> State:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return State(
            connections=len(server._connections),
            deliveries=broker.deliveries,
            queued=sum(len(queue.messages) for queue in broker.queues.values()),
            resident=_status("VmRSS"),
            peak=_status("VmHWM"),
            cpu=usage.ru_utime + usage.ru_stime,
        )

    async def main() -> None:
        nonlocal server
        server = AmqpServer(container="B1", clock=Clock(), limits=limits)
        tls = await server.listen("127.0.0.1", 0, broker, tls=lambda: own)
        plain = await server.listen("127.0.0.1", 0, broker, tls=None, password=check)
        pipe.send((tls, plain))
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        def asked() -> None:
            if pipe.recv() == "stop":
                stop.set()
            else:
                pipe.send(state())

        loop.add_reader(pipe.fileno(), asked)
        await stop.wait()
        loop.remove_reader(pipe.fileno())
        await server.close()

    asyncio.run(main())


def _status(field: str) -> int:
    """Octets, from /proc: ru_maxrss of a new process starts with that of its parent."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)
