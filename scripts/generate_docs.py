"""Writes the pages of docs/reference that are drawn from tables in the code.

    python scripts/generate_docs.py           write the pages
    python scripts/generate_docs.py --check   fail when a page is not what the code says

A state page is drawn from a mapping (state, event) -> transition, where a transition is the next state,
or has the next `state`, the `effects` that follow and the rule it is a `breach` of when the event is
refused. Diagrams are pictures beside the page: the same in a repository's browser and in the built site,
which is read where there is no internet.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "scripts")]

from state_drawing import Way, draw  # noqa: E402

Table = Mapping[tuple[StrEnum, StrEnum], Any]

NOTE = "*Generated from `{source}` by `make docs`.*"


@dataclass(frozen=True)
class Chapter:
    """One diagram: the states of one side, where it starts and where it ends."""

    heading: str
    states: Collection[StrEnum]
    first: StrEnum
    final: Collection[StrEnum]


def state_page(
    file: Path,
    title: str,
    introduction: str,
    source: str,
    table: Table,
    chapters: Iterable[Chapter],
) -> dict[Path, str]:
    """The page and its pictures."""
    found = {}
    lines = [f"# {title}", "", introduction, "", NOTE.format(source=source)]
    for chapter in chapters:
        # The order of the enumeration, which is the order of a message's life.
        states = [state for state in type(chapter.first) if state in chapter.states]
        picture = file.with_name(f"{file.stem}-{chapter.heading.lower().replace(' ', '-')}.svg")
        named = f"{title}: {chapter.heading}"
        found[picture] = draw(
            named, states, chapter.first, chapter.final, list(ways(table, states))
        )
        lines += ["", f"## {chapter.heading}", "", f"![{named}]({picture.name})"]
        lines += ["", "| state | event | next state | what follows |", "|---|---|---|---|"]
        lines += transition_rows(table, states)
    return {file: "\n".join(lines) + "\n", **found}


@dataclass(frozen=True)
class Plain:
    """A transition of a table that gives the next state and nothing else."""

    state: StrEnum
    effects: tuple[str, ...] = ()
    breach: Enum | None = None


def ways(table: Table, states: list[StrEnum]) -> Iterator[Way]:
    """Only what moves: events that leave a state as it is stand in the table."""
    for state in states:
        moves: dict[StrEnum, list[str]] = defaultdict(list)
        for event, transition in events_of(table, state):
            if transition.state != state:
                moves[transition.state].append(event)
        for target, events in moves.items():
            yield Way(state, target, tuple(events))


def transition_rows(table: Table, states: list[StrEnum]) -> Iterator[str]:
    for state in states:
        for event, transition in events_of(table, state):
            target = "" if transition.state == state else transition.state
            follows = "; ".join(transition.effects)
            if transition.breach is not None:
                follows = f"refused: {transition.breach.name}"
            yield f"| {state} | {event} | {target} | {follows} |"


def events_of(table: Table, state: StrEnum) -> Iterator[tuple[StrEnum, Any]]:
    """In the order of the events' enumeration, whatever order the table was built in."""
    events = {event: value for (at, event), value in table.items() if at == state}
    for event in type(next(iter(events))) if events else ():
        if event in events:
            value = events[event]
            yield event, Plain(value) if isinstance(value, StrEnum) else value


def refusal_page(rules: Iterable[Enum], source: str) -> str:
    """The catalogue of rules that can be broken, for whoever finds a rule's name in a log."""
    lines = [
        "# Refusals",
        "",
        "Whatever Gridpost does not do, it refuses by one of these rules. The rule's name stands in",
        "the log beside the refusal's id; applications and peers see the code. *Fault* says who has",
        "to act before the same thing can succeed.",
        "",
        NOTE.format(source=source),
        "",
        "| rule | where it stands | code | fault | try again |",
        "|---|---|---|---|---|",
    ]
    for rule in rules:
        text: Any = rule
        again = "yes" if text.retryable else ""
        lines.append(f"| {rule.name} | {text.clause} | {text.code} | {text.fault} | {again} |")
    return "\n".join(lines) + "\n"


def pages() -> dict[Path, str]:
    """Every generated page and what it has to say."""
    from gridpost.core import delivery, enrolment, refusal

    return {
        **state_page(
            Path("docs/reference/delivery-states.md"),
            "States of a message",
            "The sender endpoint and the recipient endpoint each hold their own record of a message.\n"
            "An empty next state means that the event is noted in the trace and moves nothing. The\n"
            "diagrams show only what moves, one arrow for each way from a state to another; final\n"
            "states have a second frame. The tables below them list every pair.",
            "gridpost.core.delivery.TRANSITIONS",
            delivery.TRANSITIONS,
            [
                Chapter(
                    "Sender endpoint",
                    delivery.SENDER_STATES,
                    delivery.State.SENDING,
                    delivery.FINAL_STATES,
                ),
                Chapter(
                    "Recipient endpoint",
                    delivery.RECIPIENT_STATES,
                    delivery.State.ARRIVING,
                    delivery.FINAL_STATES,
                ),
            ],
        ),
        **state_page(
            Path("docs/reference/enrolment-states.md"),
            "States of a registration",
            "How a component becomes a member of a subsystem, as the component sees it. An empty next\n"
            "state means that the event moves nothing; an event that is not listed is refused.",
            "gridpost.core.enrolment.TRANSITIONS",
            enrolment.TRANSITIONS,
            [
                Chapter(
                    "Component",
                    frozenset(enrolment.EnrolmentState),
                    enrolment.EnrolmentState.PREPARED,
                    enrolment.FINAL,
                )
            ],
        ),
        Path("docs/reference/refusals.md"): refusal_page(
            refusal.Rule, "gridpost.core.refusal.Rule"
        ),
    }


def stale(root: Path, wanted: Mapping[Path, str]) -> list[Path]:
    """Pages that are missing or say something else."""
    return [
        page
        for page, text in wanted.items()
        if not (root / page).is_file() or (root / page).read_text(encoding="utf-8") != text
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the generated pages of docs/reference.")
    parser.add_argument("--check", action="store_true", help="only say which pages are stale")
    options = parser.parse_args(arguments)
    wanted = pages()
    outdated = stale(ROOT, wanted)
    for page in outdated:
        if options.check:
            print(f"{page} is stale: run make docs", file=sys.stderr)
        else:
            (ROOT / page).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / page).write_text(wanted[page], encoding="utf-8")
            print(f"wrote {page}")
    return 1 if options.check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
