"""The course of the demonstration: make a network, register, start, exchange, show, stay up, stop."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from gridpost.assembly.clock import SystemClock
from gridpost.assembly.logs import log_to
from gridpost.assembly.network import (
    NetworkFiles,
    NetworkPlan,
    Party,
    Placed,
    read_network,
    write_network,
)
from gridpost.core.refusal import Refusal
from gridpost.demo import display
from gridpost.demo.channels import AmqpChannel, FolderChannel
from gridpost.demo.enrolment import enrol_all
from gridpost.demo.exchange import Delivery, Exchange, by_channel
from gridpost.demo.figures import STEPS, Figures, what_is_missing
from gridpost.demo.further import Further
from gridpost.demo.processes import Components, check
from gridpost.demo.result import DemoResult
from gridpost.transports.free_port import free_port

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

_Exchanged = tuple[list[Delivery], list[str]]
"""Documents, and why some of them were not received."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What was asked for on the command line."""

    once: bool = False
    messages: int = 1
    home: Path | None = None
    pipeline: bool = True
    further: bool = True


def run_demo(plan: DemoPlan, console: Console) -> DemoResult:
    if plan.home is not None:
        return asyncio.run(_Demo(plan, plan.home.absolute(), console).run())
    with tempfile.TemporaryDirectory(prefix="gridpost-demo-") as folder:
        return asyncio.run(_Demo(plan, Path(folder) / "network", console).run())


class _Demo:
    def __init__(self, plan: DemoPlan, home: Path, console: Console) -> None:
        self._plan = plan
        self._home = home
        self._console = console
        self._started = time.monotonic()
        self._left_out: dict[str, str] = {}

    async def run(self) -> DemoResult:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        files = await asyncio.to_thread(self._network)
        components = Components(files)
        figures = await self._figures(files)
        further = Further(files, free_port) if self._plan.further else None
        # What the registration says is for the log; the screen belongs to the demonstration.
        log = files.folder / "log" / "demo.log"
        log.parent.mkdir(mode=0o700, exist_ok=True)
        with log.open("a", encoding="utf-8") as stream:
            log_to(stream, "demo")
            try:
                work = asyncio.create_task(self._show(components, further, figures))
                await _first(work, stop)
                if not work.done():
                    work.cancel()
                    with suppress(asyncio.CancelledError):
                        await work
                    raise SystemExit(130)
                result = await work
                if not self._plan.once and not stop.is_set():
                    await self._stay(components, further, stop)
                return result
            except BaseExceptionGroup as group:
                # The first failure says what is wrong; the others follow from it.
                raise _leaf(group) from None
            finally:
                self._console.print("Stopping …")
                stopping = [components.stop()]
                if further is not None:
                    stopping.append(further.stop())
                if figures is not None:
                    stopping.append(figures.stop())
                await asyncio.gather(*stopping)

    def _network(self) -> NetworkFiles:
        if (self._home / "network.json").exists():
            self._console.print(f"Starting the network in {self._home}")
            return read_network(self._home)
        self._console.print(f"Making a network in {self._home}")
        plan = NetworkPlan(PARTIES, ports=free_port, synchronisation="1s")
        return write_network(self._home, plan, SystemClock().now())

    async def _figures(self, files: NetworkFiles) -> Figures | None:
        """Spark starts first: it takes longest, and is needed last."""
        if not self._plan.pipeline:
            self._left_out["pipeline"] = "--no-pipeline was given"
            return None
        missing = await asyncio.to_thread(what_is_missing)
        if missing:
            self._left_out["pipeline"] = missing
            return None
        figures = Figures(files)
        await figures.start()
        return figures

    async def _show(
        self, components: Components, further: Further | None, figures: Figures | None
    ) -> DemoResult:
        files = components.files
        parts = None
        with display.progress(self._console) as shown:
            async with asyncio.TaskGroup() as group:
                if further is not None:
                    parts = group.create_task(
                        further.show(SystemClock().now(), lambda *line: display.stage(shown, *line))
                    )
                deliveries, reasons = await self._exchange(components, shown)
                seconds = round(time.monotonic() - self._started, 3)
        check([*components.all, *(further.processes if further is not None else ())])
        if further is None:
            self._left_out |= dict.fromkeys(("capacity", "bus", "node"), "--no-further was given")
        else:
            self._left_out |= further.left_out
        journals = [*files.components, *(further.journals if further is not None else ())]
        result = self._sum_up(deliveries, reasons, seconds)
        result = replace(result, parts=parts.result() if parts is not None else {})
        display.further(self._console, result.parts, self._left_out)
        if figures is not None:
            result = await self._read_journals(result, figures, journals)
        return replace(
            result,
            left_out=self._left_out,
            total_seconds=round(time.monotonic() - self._started, 3),
        )

    async def _exchange(self, components: Components, shown: Progress) -> _Exchanged:
        files = components.files
        others = len(files.components) - 1
        done = display.stage(shown, "component-directory starts", 1)
        await components.directory.start()
        done(files.directory.code)
        await enrol_all(files, display.stage(shown, "components register", others))
        await components.start_others(display.stage(shown, "components start", others))
        async with Exchange(files) as exchange:
            await exchange.find_ways(
                display.stage(shown, "connectivity tests", len(exchange.pairs))
            )
            count = exchange.count(self._plan.messages)
            done = display.stage(shown, "documents delivered", count)
            deliveries = await exchange.run(
                self._plan.messages, lambda d: done(f"{d.sender} -> {d.receiver} {d.status}")
            )
            reasons = [
                f"{d.message_id} from {d.sender} to {d.receiver}: {await exchange.explain(d)}"
                for d in deliveries
                if d.status != "RECEIVED"
            ]
        return deliveries, reasons

    async def _read_journals(
        self, result: DemoResult, figures: Figures, journals: list[Placed]
    ) -> DemoResult:
        """What the journals of all components say of the same exchange."""
        with display.progress(self._console) as shown:
            done = display.stage(shown, "key figures from all journals", len(STEPS))
            found = await figures.make(journals, done)
        display.key_figures(self._console, found)
        return replace(result, key_figures=found)

    def _sum_up(self, deliveries: list[Delivery], reasons: list[str], seconds: float) -> DemoResult:
        say = self._console.print
        display.delivered(self._console, deliveries)
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

    async def _stay(
        self, components: Components, further: Further | None, stop: asyncio.Event
    ) -> None:
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
        more = further.consoles if further is not None else ()
        for placed in (*components.files.components, *more):
            self._console.print(
                f"  {placed.code:<12} https://127.0.0.1:{placed.ports['console']}  password in "
                f"{components.files.console_password(placed)}",
                soft_wrap=True,
            )
        self._console.print("Ctrl-C stops it.")
        processes = [*components.all, *(further.processes if further is not None else ())]
        ends = [asyncio.create_task(process.ended.wait()) for process in processes]
        waiting = asyncio.create_task(stop.wait())
        await asyncio.wait([waiting, *ends], return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, *ends):
            task.cancel()
        check(processes)


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
