"""The course of the demonstration: make a network, register, start, exchange, show, stay up, stop."""

from __future__ import annotations

import asyncio
import signal
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from gridpost.assembly.clock import SystemClock
from gridpost.assembly.logs import log_to
from gridpost.assembly.network import (
    NetworkFiles,
    NetworkPlan,
    Party,
    read_network,
    write_network,
)
from gridpost.core.refusal import Refusal
from gridpost.demo import figures
from gridpost.demo.channels import AmqpChannel, FolderChannel
from gridpost.demo.enrolment import enrol_all
from gridpost.demo.exchange import Delivery, Exchange, by_channel
from gridpost.demo.processes import Components
from gridpost.demo.result import DemoResult

PARTIES = tuple(
    Party(
        code,
        name,
        direct,
        folder_types=(FolderChannel.message_type,),
        amqp_types=(AmqpChannel.message_type,),
    )
    for code, name, direct in (
        ("NORTHGRID", "Northgrid Transmission", False),
        ("SOUTHPOWER", "Southpower Trading", False),
        ("WESTEX", "Westex Power Exchange", True),
    )
)
SHOWN = 40
"""Rows of the closing table; more documents than that are summed up."""


def run_demo(
    *, once: bool, messages: int, home: Path | None, console: Console, pipeline: bool = True
) -> DemoResult:
    if home is not None:
        return asyncio.run(_Demo(home, messages, console, pipeline).run(once))
    with tempfile.TemporaryDirectory(prefix="gridpost-demo-") as folder:
        made = _Demo(Path(folder) / "network", messages, console, pipeline)
        return asyncio.run(made.run(once))


class _Demo:
    def __init__(self, home: Path, messages: int, console: Console, pipeline: bool) -> None:
        self._home = home
        self._messages = messages
        self._console = console
        self._pipeline = pipeline

    async def run(self, once: bool) -> DemoResult:
        started = time.monotonic()
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        files = await asyncio.to_thread(self._network)
        components = Components(files)
        # What the registration says is for the log; the screen belongs to the demonstration.
        log = files.folder / "log" / "demo.log"
        log.parent.mkdir(mode=0o700, exist_ok=True)
        with log.open("a", encoding="utf-8") as stream:
            log_to(stream, "demo")
            try:
                work = asyncio.create_task(self._show(components, started))
                await _first(work, stop)
                if not work.done():
                    work.cancel()
                    with suppress(asyncio.CancelledError):
                        await work
                    raise SystemExit(130)
                result = await work
                if not once and not stop.is_set():
                    await self._stay(components, stop)
                return result
            except BaseExceptionGroup as group:
                # The first failure says what is wrong; the others follow from it.
                raise _leaf(group) from None
            finally:
                self._console.print("Stopping …")
                await components.stop()

    def _network(self) -> NetworkFiles:
        if (self._home / "network.json").exists():
            self._console.print(f"Starting the network in {self._home}")
            return read_network(self._home)
        self._console.print(f"Making a network in {self._home}")
        plan = NetworkPlan(PARTIES, ports=_free_port, synchronisation="1s")
        return write_network(self._home, plan, SystemClock().now())

    async def _show(self, components: Components, started: float) -> DemoResult:
        files = components.files
        others = len(files.components) - 1
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<32}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[last]}"),
            console=self._console,
            transient=False,
        ) as progress:

            def stage(name: str, total: int) -> _Stage:
                return _Stage(progress, name, total)

            step = stage("component-directory starts", 1)
            await components.directory.start()
            step.done(files.directory.code)
            step = stage("components register", others)
            await enrol_all(files, step.done)
            step = stage("components start", others)
            await components.start_others(step.done)
            async with Exchange(files) as exchange:
                step = stage("connectivity tests", len(exchange.pairs))
                await exchange.find_ways(step.done)
                step = stage("documents delivered", exchange.count(self._messages))
                deliveries = await exchange.run(
                    self._messages, lambda d: step.done(f"{d.sender} -> {d.receiver} {d.status}")
                )
                reasons = [
                    f"{d.message_id} from {d.sender} to {d.receiver}: {await exchange.explain(d)}"
                    for d in deliveries
                    if d.status != "RECEIVED"
                ]
        components.check()
        seconds = round(time.monotonic() - started, 3)
        result = self._sum_up(deliveries, reasons, seconds)
        return replace(result, key_figures=await self._figures(files)) if self._pipeline else result

    async def _figures(self, files: NetworkFiles) -> dict[str, Any] | None:
        """What the journals of all components say of the same exchange."""
        missing = await asyncio.to_thread(figures.what_is_missing)
        if missing:
            self._console.print(f"No key figures: {missing}.")
            return None
        with Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<32}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[last]}"),
            console=self._console,
        ) as progress:
            step = _Stage(progress, "key figures from all journals", len(figures.STEPS))
            found = await figures.make_figures(files, step.done)
        table = Table(title="Key figures", title_justify="left", show_header=False)
        for name, value in found.items():
            told = value
            if isinstance(value, dict):
                told = ", ".join(f"{count} {what}" for what, count in value.items())
            table.add_row(name.replace("_", " "), str(told))
        self._console.print(table)
        return found

    def _sum_up(self, deliveries: list[Delivery], reasons: list[str], seconds: float) -> DemoResult:
        say = self._console.print
        say(_table(deliveries[:SHOWN]))
        if len(deliveries) > SHOWN:
            say(f"and {len(deliveries) - SHOWN} more")
        for reason in reasons:
            say(reason)
        received = sum(d.status == "RECEIVED" for d in deliveries)
        verified = sum(d.proven for d in deliveries)
        say(
            f"{received} of {len(deliveries)} documents RECEIVED, {verified} proofs verified, "
            f"in {seconds} s."
        )
        return DemoResult(
            sent=len(deliveries),
            received=received,
            failed=len(deliveries) - min(received, verified),
            proofs_verified=verified,
            by_channel=by_channel(deliveries),
            seconds=seconds,
        )

    async def _stay(self, components: Components, stop: asyncio.Event) -> None:
        """Until Ctrl-C, or until a component ends by itself."""
        self._console.print(f"The network stays up; logs are in {components.files.folder / 'log'}.")
        first, second = components.files.endpoints[:2]
        self._console.print(
            f"Try: gridpost send {second.code} A01 FILE --url http://127.0.0.1:{first.ports['api']} "
            f"--user app --password-file {components.files.password(first)}",
            soft_wrap=True,
        )
        self._console.print(
            "Consoles (the browser does not know these certificates; user operator):"
        )
        for placed in components.files.components:
            self._console.print(
                f"  {placed.code:<12} https://127.0.0.1:{placed.ports['console']}  password in "
                f"{components.files.console_password(placed)}",
                soft_wrap=True,
            )
        self._console.print("Ctrl-C stops it.")
        ends = [asyncio.create_task(process.ended.wait()) for process in components.all]
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([waiting, *ends], return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, *ends):
            task.cancel()
        components.check()


class _Stage:
    """One line of the progress display."""

    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total, last="")

    def done(self, what: str) -> None:
        self._progress.update(self._task, advance=1, last=what)


def _table(deliveries: list[Delivery]) -> Table:
    table = Table(title="What was delivered", title_justify="left")
    for heading in ("channel", "from", "to", "route", "status"):
        table.add_column(heading, no_wrap=True)
    table.add_column("ms", justify="right")
    table.add_column("proof")
    for d in sorted(deliveries, key=lambda d: (d.channel, d.sender, d.receiver)):
        table.add_row(
            d.channel,
            d.sender,
            d.receiver,
            d.route.replace("INDIRECT:", "via "),
            d.status,
            f"{d.milliseconds:.0f}",
            "verified" if d.proven else "missing",
        )
    return table


async def _first(work: asyncio.Task[DemoResult], stop: asyncio.Event) -> None:
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        refusals = [e for e in found.exceptions if isinstance(e, Refusal | BaseExceptionGroup)]
        found = (refusals or list(found.exceptions))[0]
    return found


def _free_port() -> int:
    """One that nobody listens on now, and that the kernel gives to no outgoing connection soon."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
