"""The page about writing a handler: its module, its trial and its configuration are what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from gridpost.assembly.bus import _register
from gridpost.assembly.bus_trial import trial_bus
from gridpost.assembly.check import check
from gridpost.envelope import FaultMessage, RequestMessage, Rule, Sender
from support.child import environment, run_python

PAGE = Path(__file__).parents[3] / "docs/operations/bus-handler.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_module_and_its_trial_run_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, trial = blocks("python")
    (tmp_path / "workorders.py").write_text(module)
    (tmp_path / "trial.py").write_text(trial)
    done = run_python(str(tmp_path / "trial.py"), timeout=300)
    assert done.returncode == 0, done.stderr
    assert environment()["PYTHONPATH"]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    served: list[tuple[str, str]] = []

    class Service:
        def handles(self, verb: str, noun: str) -> object:
            served.append((verb, noun))
            return lambda function: function

        listens = handles

    _register("workorders", Service())  # type: ignore[arg-type]
    sys.modules.pop("workorders")
    assert served == [
        ("create", "WorkOrders"), ("get", "WorkOrders"), ("changed", "EndDeviceControls"),
    ]  # fmt: skip


def test_the_configuration_is_one(tmp_path: Path) -> None:
    (text,) = blocks("toml")
    (tmp_path / "bus.toml").write_text(text)
    found = check(tmp_path / "bus.toml").warnings
    # What the page says itself about production.
    assert all("amqp://" in doubt or "replay_required" in doubt for doubt in found), found


async def test_a_trial_keeps_the_promises_of_a_bus() -> None:
    calls: list[str] = []

    def register(service) -> None:
        @service.handles("create", "Notes")
        def create(request: RequestMessage, transaction) -> None:
            calls.append(request.header.message_id)

        @service.listens("changed", "Notes")
        def changed(event, transaction) -> None:
            raise ValueError("broken")

    ems, note = Sender("EMS", "TESTING"), '<n:Notes xmlns:n="urn:n"/>'
    async with trial_bus(register) as bus:
        request = ems.request("create", "Notes", note)
        first, second = await bus.ask(request), await bus.ask(request)
        assert first.responses == second.responses
        assert calls == [request.header.message_id]
        one_way = await bus.ask(ems.request("create", "Notes", note, one_way=True))
        assert (one_way.responses, len(one_way.events)) == ((), 1)
        assert isinstance((await bus.ask(b"<no")).response, FaultMessage)
        refusal = await bus.tell(ems.event("changed", "Notes", note))
        assert refusal is not None
        assert refusal.rule is Rule.INTERNAL
        unheard = await bus.tell(ems.event("created", "Notes", note))
        assert unheard is not None
        assert unheard.rule is Rule.NOT_HANDLED
