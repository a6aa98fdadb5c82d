"""Journal rows of a made-up capacity service, with one gap and one wrong broadcast that must be found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gridpost.core.journal import (
    AllocationRow,
    AtcRow,
    BroadcastRow,
    Identity,
    JournalRow,
    SessionEvent,
    SessionRow,
)

DAY = datetime(2026, 3, 28, 23, tzinfo=UTC)
HOURS = [DAY + timedelta(hours=n) for n in range(3)]
EIGHT = datetime(2026, 3, 28, 8, tzinfo=UTC)
CMM = Identity("CMM", "3d0e8c1a-5f7b-4a52-9c58-5d2a7e1b9f10")


class Ledger:
    """What a service with one border would have written, kept by the simplest of books."""

    def __init__(self) -> None:
        self.rows: list[JournalRow] = []
        self.booked = dict.fromkeys(HOURS, 0)
        self.offered = 100
        self.numbers: dict[str, int] = {}

    def publish(self, at: datetime, hours=HOURS, *, lost: int = 0) -> None:
        number = f"b{len(self.rows)}"
        self.rows.append(
            BroadcastRow(at, number, "atc.DE-FR", "PUBLISH", "DE", "FR", len(hours) + lost, "DE-FR",
                         "2026-03-29")
        )  # fmt: skip
        self.rows += [
            AtcRow(at, "DE-FR", "DE", "FR", "2026-03-29", hour, hour + timedelta(hours=1),
                   self.offered - self.booked[hour], self.offered, self.booked[hour], "PUBLISH",
                   number)
            for hour in hours
        ]  # fmt: skip

    def allocate(self, at: datetime, group: str, hour: datetime, quantity: int, skip=0) -> None:
        self.booked[hour] += quantity
        self.rows.append(
            AllocationRow(at, len(self.rows), "DE-FR", "DE", "FR", hour, hour + timedelta(hours=1),
                          quantity, quantity + 5, group, "Erika Muster", "c1", "r1", "EXPLICIT",
                          "ALLOCATION")
        )  # fmt: skip
        number = self.numbers.get(group, 0) + skip
        self.numbers[group] = number + 1
        self.rows.append(
            BroadcastRow(at, f"b{len(self.rows)}", f"alloc.{group}", "ALLOCATION", "DE", "FR", 1,
                         balancing_group=group, sequence_id=number)
        )  # fmt: skip
        self.publish(at, [hour])

    def session(self, at: datetime, user: str, groups: str, **changes) -> None:
        """Without groups it ends."""
        event = SessionEvent.LOGIN if groups else SessionEvent.ENDED
        self.rows.append(SessionRow(at, user, event, balancing_groups=groups, **changes))


def capacity_rows() -> list[JournalRow]:
    ledger = Ledger()
    ledger.session(EIGHT, "Erika Muster", "BG1 BG2")
    ledger.session(EIGHT, "Otto", "BG1", filtered=True, arguments="X_Event:ALLOCATION")
    # Gone, or told of another group, when the numbers are missing.
    ledger.session(EIGHT, "Lisa", "BG1")
    ledger.session(EIGHT, "Karl", "BG1")
    ledger.publish(EIGHT)
    ledger.allocate(EIGHT + timedelta(minutes=1), "BG1", HOURS[0], 40)
    ledger.allocate(EIGHT + timedelta(minutes=2), "BG2", HOURS[0], 10)
    ledger.session(EIGHT + timedelta(minutes=2), "Lisa", "")
    ledger.session(EIGHT + timedelta(minutes=2), "Karl", "BG2")
    # He did not hear the number before them.
    ledger.session(EIGHT + timedelta(minutes=2), "Max", "BG1 BG2")
    # The numbers 1 and 2 of BG1 were never journalled.
    ledger.allocate(EIGHT + timedelta(minutes=3), "BG1", HOURS[1], 25, skip=2)
    # A broadcast with one value more than the ledger has.
    ledger.publish(EIGHT + timedelta(minutes=4), lost=1)
    return ledger.rows
