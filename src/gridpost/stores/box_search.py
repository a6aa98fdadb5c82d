"""A page of a search in a box of millions: what leads it, how far it looks, where the next goes on.

Newest first is the order of numbers, in which every index keeps the rows of one key. What is asked
for leads the search by its own index; of several fields, the one with the fewest messages. A page
looks at LOOKED_AT messages of its lead and no further, so that a rare text among a million failed
messages, or two fields that never meet, cost as little as anything else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gridpost.core.delivery import Side
from gridpost.core.message_box import IN_TROUBLE, LOOKED_AT, Found, Search
from gridpost.stores.box_rows import BoxRow
from gridpost.stores.values import to_microseconds

# A field and what its index is limited to (without this, a database would not use the index).
FIELDS = {
    "message_id": "",
    "conversation_id": " AND conversation_id <> '' AND side = 'sent'",
    "ba_message_id": " AND ba_message_id <> ''",
    "peer": "",
    "status": " AND status IS NOT NULL",
    "message_type": "",
}
TEXT = "text"
EVERYTHING = "everything"
TROUBLE = ", ".join(f"'{state.value}'" for state in sorted(IN_TROUBLE))

# Arrival times follow the numbers only as well as the clock did: so many arrivals next to the edge
# of a period say where its numbers end.
NEXT_TO_EDGE = 1_000
_LAST = 2**63 - 1


class Reach(NamedTuple):
    """What a page of a lead looks at: how many messages, and the oldest of them."""

    messages: int
    floor: int | None


class BoxSearch(ABC):
    """The SQL of one database is in its subclasses; parameters have the names of the fields."""

    plain = ""
    """Before a column: the database must not look for an index of it."""

    def __init__(self, search: Search, limit: int, look: int | None = None) -> None:
        self._search = search
        self._limit = limit
        self._look = max(LOOKED_AT if look is None else look, limit)
        self._asked = [field for field in FIELDS if getattr(search, field)]
        self.values: dict[str, object] = {
            **{field: str(getattr(search, field)) for field in self._asked},
            "limit": limit,
            "look": self._look,
            "low": 0,
            "high": _LAST,
        }
        if search.text:
            self.values[TEXT] = f"%{_literal(search.text)}%"
        if search.side is not None:
            self.values["side"] = Side(search.side).value

    @abstractmethod
    def ask(self, statement: str, values: Mapping[str, object]) -> Sequence[Sequence[Any]]: ...

    @abstractmethod
    def mark(self, name: str) -> str:
        """A parameter, as the database writes it."""

    @abstractmethod
    def numbers(self, lead: str) -> str:
        """Select the numbers of the newest `look` messages of the lead from `low` to `high`."""

    @abstractmethod
    def page_of(self, lead: str, conditions: Sequence[str]) -> str:
        """Select BOX_COLUMNS of the newest `limit` messages that the lead has down to `low`."""

    @abstractmethod
    def tells(self) -> str:
        """The condition that a message is in trouble and its trace has the text."""

    def page(self, before: int | None) -> Found:
        if before is not None:
            self.values["high"] = before - 1
        if not self._keep_to_period():
            return Found()
        lead, reach = self._lead()
        ends = reach.messages < self._look
        if not ends:
            self.values["low"] = reach.floor
        rows = self.ask(self.page_of(lead, self._conditions(lead)), self.values)
        entries = tuple(BoxRow.read(row).to_entry() for row in rows)
        if len(entries) == self._limit:
            return Found(entries, entries[-1].number)
        return Found(entries, None if ends else reach.floor)

    def _lead(self) -> tuple[str, Reach]:
        leads = [*self._asked, *([TEXT] if self._search.text else [])]
        if leads:
            reaches = {lead: self._reach(lead) for lead in leads}
            best = min(leads, key=lambda lead: (reaches[lead].messages, reaches[lead].floor or 0))
            return best, reaches[best]
        if self._conditions(EVERYTHING):
            return EVERYTHING, self._reach(EVERYTHING)
        return EVERYTHING, Reach(0, None)

    def _reach(self, lead: str) -> Reach:
        statement = f"SELECT count(*), min(number) FROM ({self.numbers(lead)}) AS newest"
        (found,) = self.ask(statement, self.values)
        return Reach(*found)

    def _keep_to_period(self) -> bool:
        """False: nothing came in it."""
        search = self._search
        for moment, name, compared, order, edge in (
            (search.since, "since", ">=", "", "min"),
            (search.until, "until", "<", " DESC", "max"),
        ):
            if moment is None:
                continue
            self.values[name] = to_microseconds(moment)
            ((number,),) = self.ask(
                f"SELECT {edge}(number) FROM (SELECT number FROM message "
                f"WHERE arrived_at {compared} {self.mark(name)} "
                f"ORDER BY arrived_at{order} LIMIT {NEXT_TO_EDGE}) AS next_to_edge",
                self.values,
            )
            if number is None:
                return False
            if name == "since":
                self.values["low"] = number
            else:
                self.values["high"] = min(int(str(self.values["high"])), number)
        return True

    def _conditions(self, lead: str) -> list[str]:
        """What the lead leaves open."""
        search, plain = self._search, self.plain
        found = [
            f"{plain}{field} = {self.mark(field)}{FIELDS[field]}"
            for field in self._asked
            if field != lead
        ]
        if search.text:
            found.append(self.tells())
        if search.side is not None:
            found.append(f"{plain}side = {self.mark('side')}")
        if search.since is not None:
            found.append(f"{plain}arrived_at >= {self.mark('since')}")
        if search.until is not None:
            found.append(f"{plain}arrived_at < {self.mark('until')}")
        return found


def _literal(text: str) -> str:
    """For LIKE: what somebody typed stands for itself."""
    return text.replace("~", "~~").replace("%", "~%").replace("_", "~_")
