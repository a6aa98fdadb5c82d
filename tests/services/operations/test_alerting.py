"""A component that looks at itself and tells people, by every way that there is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from structlog.testing import capture_logs

from gridpost.core.alerts import AlertBook, AlertKind, AlertPolicy, Condition, Notice, Phase
from gridpost.services.operations.alerting import Alerting
from support.component_directory import TestClock

AT = datetime(2030, 6, 1, 12, tzinfo=UTC)


class Memory:
    def load(self) -> AlertBook:
        return AlertBook()

    def save(self, book: AlertBook) -> None: ...


class Way:
    """Reaches people unless it is broken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.broken = False
        self.told: list[Notice] = []

    async def tell(self, component: str, notices: Sequence[Notice]) -> None:
        if self.broken:
            raise OSError("nobody answers")
        self.told += notices


class Look:
    def __init__(self) -> None:
        self.found: list[Condition] = []
        self.broken = False

    async def __call__(self) -> Sequence[Condition]:
        if self.broken:
            raise RuntimeError("the store does not answer")
        return list(self.found)


async def test_every_kind_reaches_every_way_and_the_log_and_a_broken_way_hears_it_later() -> None:
    look, mail, hook = Look(), Way("email"), Way("webhook")
    ways = [mail, hook]
    alerting = Alerting("E1", TestClock(AT), [look], ways, Memory(), AlertPolicy(UTC), timedelta(1))
    look.found = [Condition(kind, "x", f"about {kind}") for kind in AlertKind]
    mail.broken = True
    with capture_logs() as said:
        await alerting.look()
    assert {line["kind"] for line in said if line["event"] == "alert"} == set(AlertKind)
    assert {notice.condition.kind for notice in hook.told} == set(AlertKind)
    assert mail.told == []
    mail.broken = False
    assert await alerting.look() == []
    assert {notice.condition.kind for notice in mail.told} == set(AlertKind)
    assert len(mail.told) == len(hook.told) == len(AlertKind)


async def test_an_observer_that_cannot_look_ends_no_alert() -> None:
    look, other, way = Look(), Look(), Way("webhook")
    alerting = Alerting(
        "E1", TestClock(AT), [look, other], [way], Memory(), AlertPolicy(UTC), timedelta(1)
    )
    look.found = [Condition(AlertKind.MESSAGE_WAITING, "E2", "3 messages wait")]
    await alerting.look()
    look.broken = True
    other.found = [Condition(AlertKind.DISK_SPACE, "data", "full")]
    await alerting.look()
    assert [notice.phase for notice in way.told] == [Phase.RAISED, Phase.RAISED]
    assert len(alerting.book.open) == 2
    look.broken, look.found = False, []
    await alerting.look()
    assert way.told[-1].phase is Phase.CLEARED
