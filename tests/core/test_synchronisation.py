"""Replicas: what is sent, how it is merged, and until when it may be used (503 cl. 7.3.2, 7.7)."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridpost.core.component import Contact
from gridpost.core.identifiers import ComponentCode
from gridpost.core.synchronisation import (
    Answer,
    Couple,
    Directory,
    Grant,
    answer,
    content_id,
    home_directory,
    merge,
    merge_home_of,
)
from support.builders import NOW, broker, component_directory, directory, endpoint, path, subsystem

TTL = timedelta(hours=1)
CD1, CD2, CD3 = ComponentCode("CD-1"), ComponentCode("CD-2"), ComponentCode("CD-3")


def world() -> Directory:
    """What CD-1 knows: its own subsystem, and a replica of CD-2's that was granted 40 minutes."""
    return Directory.of(
        [
            subsystem(component_directory(), endpoint("E1"), broker("B1")),
            subsystem(
                component_directory("CD-2"),
                endpoint("E2", home="CD-2"),
                home="CD-2",
                valid_until=NOW + timedelta(minutes=40),
            ),
        ]
    )


def asked(*couples: Couple, only_home: bool = False) -> Answer:
    return answer(world(), couples, home=CD1, ttl=TTL, only_home=only_home, at=NOW)


def test_a_first_request_is_answered_with_everything() -> None:
    reply = asked()
    assert {g.component_directory: g.ttl for g in reply.grants} == {
        CD1: TTL,
        # Never longer than what was granted to the one who passes it on.
        CD2: timedelta(minutes=40),
    }
    assert {c.code for c in reply.components} == {"CD-1", "E1", "B1", "CD-2", "E2"}


def test_an_unchanged_subsystem_is_prolonged_without_being_sent() -> None:
    reply = asked(*world().couples())
    assert reply.components == ()
    assert len(reply.grants) == 2


def test_a_changed_subsystem_is_sent_whole() -> None:
    reply = asked(Couple(CD1, "old"), Couple(CD2, world().subsystems[CD2].content_id))
    assert {c.code for c in reply.components} == {"CD-1", "E1", "B1"}


def test_between_directories_only_the_own_subsystem_is_given() -> None:
    reply = asked(only_home=True)
    assert [g.component_directory for g in reply.grants] == [CD1]
    assert {c.component_directory for c in reply.components} == {CD1}


def test_a_lapsed_replica_is_not_passed_on() -> None:
    reply = answer(world(), (), home=CD1, ttl=TTL, only_home=False, at=NOW + timedelta(minutes=40))
    assert [g.component_directory for g in reply.grants] == [CD1]


def test_a_client_that_takes_over_an_answer_holds_what_the_directory_holds() -> None:
    taken = merge(Directory(), asked(), at=NOW)
    assert taken.changed == {CD1, CD2}
    assert taken.warnings == ()
    assert {c.code for c in taken.directory.components(NOW)} == {"CD-1", "E1", "B1", "CD-2", "E2"}
    assert taken.directory.couples() == world().couples()


def test_an_unchanged_answer_prolongs_and_changes_nothing_else() -> None:
    held = merge(Directory(), asked(), at=NOW).directory
    later = NOW + timedelta(minutes=10)
    again = merge(held, asked(*held.couples()), at=later)
    assert again.changed == frozenset()
    assert again.directory.subsystems[CD1].valid_until == later + TTL
    assert again.directory.subsystems[CD1].components == held.subsystems[CD1].components


def test_data_is_used_only_while_it_is_valid() -> None:
    held = merge(Directory(), asked(), at=NOW).directory
    last = NOW + TTL - timedelta(milliseconds=1)
    assert held.find("E1", last) is not None
    assert held.find("E1", NOW + TTL) is None
    assert held.lapsed("E1", NOW + TTL)
    assert not held.lapsed("E9", NOW + TTL)
    assert list(held.components(NOW + TTL)) == []


def test_a_replaced_subsystem_leaves_no_old_entry_and_a_missing_one_disappears() -> None:
    held = merge(Directory(), asked(), at=NOW).directory
    new = subsystem(component_directory(), endpoint("E3"))
    reply = Answer((Grant(CD1, new.content_id, TTL),), new.components)
    after = merge(held, reply, at=NOW)
    assert {c.code for c in after.directory.components(NOW)} == {"CD-1", "E3"}
    assert after.changed == {CD1, CD2}


def test_a_grant_without_its_content_keeps_the_old_replica_and_its_end() -> None:
    held = merge(Directory(), asked(), at=NOW).directory
    reply = Answer((Grant(CD1, "never-sent", TTL), Grant(CD3, "x", TTL)), ())
    after = merge(held, reply, at=NOW + timedelta(minutes=5))
    assert after.directory.subsystems[CD1] == held.subsystems[CD1]
    assert CD3 not in after.directory.subsystems
    assert len(after.warnings) == 2


@pytest.mark.req("503-5.1-a")
def test_a_code_that_exists_already_is_rejected_whatever_its_kind() -> None:
    """The first owner keeps the code; the rest of the other subsystem is taken over."""
    mine = directory(component_directory(), endpoint("X"), endpoint("E1"))
    theirs = subsystem(
        component_directory("CD-2"),
        broker("X", home="CD-2"),
        endpoint("E2", home="CD-2"),
        home="CD-2",
    )
    reply = Answer((Grant(CD2, theirs.content_id, TTL),), theirs.components)
    after = merge_home_of(mine, reply, CD2, at=NOW)
    assert after.directory.find("X", NOW) == mine.find("X", NOW)
    assert after.directory.find("E2", NOW) is not None
    assert len(after.warnings) == 1
    assert "X of subsystem CD-2 is rejected" in after.warnings[0]


def test_a_code_of_a_third_subsystem_is_protected_too() -> None:
    mine = Directory.of(
        [
            subsystem(component_directory()),
            subsystem(component_directory("CD-3"), endpoint("X", home="CD-3"), home="CD-3"),
        ]
    )
    theirs = subsystem(component_directory("CD-2"), endpoint("X", home="CD-2"), home="CD-2")
    reply = Answer((Grant(CD2, theirs.content_id, TTL),), theirs.components)
    after = merge_home_of(mine, reply, CD2, at=NOW)
    kept = after.directory.find("X", NOW)
    assert kept is not None
    assert kept.component_directory == CD3


@pytest.mark.req("503-4.4.3-a", component="endpoint")
def test_a_code_stays_with_its_home_whichever_directory_is_asked() -> None:
    """CD-2 lists itself first, with a code that belongs to CD-1."""
    mine = directory(component_directory(), endpoint("X"))
    home = mine.subsystems[CD1]
    theirs = subsystem(component_directory("CD-2"), endpoint("X", home="CD-2"), home="CD-2")
    grants = tuple(Grant(s.component_directory, s.content_id, TTL) for s in (theirs, home))
    after = merge(mine, Answer(grants, (*theirs.components, *home.components)), at=NOW)
    assert after.directory.find("X", NOW) == mine.find("X", NOW)
    assert after.warnings == (
        "X of subsystem CD-2 is rejected: the code belongs to subsystem CD-1",
    )
    # Once its home has let it go, the code is free.
    rest = subsystem(component_directory())
    grants = tuple(Grant(s.component_directory, s.content_id, TTL) for s in (theirs, rest))
    moved = merge(after.directory, Answer(grants, (*theirs.components, *rest.components)), at=NOW)
    found = moved.directory.find("X", NOW)
    assert found is not None
    assert found.component_directory == CD2


def test_a_code_doubled_inside_one_subsystem_counts_once() -> None:
    doubled = subsystem(component_directory(), endpoint("X"), broker("X"))
    after = merge(
        Directory(), Answer((Grant(CD1, doubled.content_id, TTL),), doubled.components), at=NOW
    )
    found = after.directory.find("X", NOW)
    assert found is not None
    assert found.type == "ENDPOINT"
    assert len(after.warnings) == 1


def test_a_directory_speaks_for_its_own_subsystem_only() -> None:
    """CD-2 cannot slip components of CD-1 or CD-3 into CD-1's copy."""
    mine = directory(component_directory(), endpoint("E1"))
    forged = endpoint("E7", home="CD-3")
    reply = Answer(
        (Grant(CD1, "forged", TTL), Grant(CD2, "c2", TTL)),
        (endpoint("E1", path("EVIL")), forged, component_directory("CD-2")),
    )
    after = merge_home_of(mine, reply, CD2, at=NOW)
    assert after.directory.subsystems[CD1] == mine.subsystems[CD1]
    assert after.directory.find("E7", NOW) is None
    assert after.directory.find("CD-2", NOW) is not None
    assert len(after.warnings) == 2


def test_a_second_answer_of_a_directory_replaces_its_first() -> None:
    mine = directory(component_directory())
    first = subsystem(component_directory("CD-2"), endpoint("E2", home="CD-2"), home="CD-2")
    held = merge_home_of(
        mine, Answer((Grant(CD2, first.content_id, TTL),), first.components), CD2, at=NOW
    ).directory
    second = subsystem(component_directory("CD-2"), home="CD-2")
    after = merge_home_of(
        held, Answer((Grant(CD2, second.content_id, TTL),), second.components), CD2, at=NOW
    )
    assert after.directory.find("E2", NOW) is None
    assert after.changed == {CD2}


def test_the_home_of_a_component_is_its_component_directory() -> None:
    known = world()
    e1 = known.find("E1", NOW)
    assert e1 is not None
    home = home_directory(known, e1, NOW)
    assert home is not None
    assert home.code == CD1
    assert home_directory(directory(e1), e1, NOW) is None


@given(st.permutations(["E1", "E2", "E3", "E4"]))
def test_equal_contents_have_equal_identifiers_in_any_order(codes: list[str]) -> None:
    senders = ["E9", "E8", "E7"]
    reference = content_id([endpoint(c, path("A", senders=senders)) for c in sorted(codes)])
    assert reference == content_id([endpoint(c, path("A", senders=senders[::-1])) for c in codes])


def test_any_change_of_content_changes_the_identifier() -> None:
    base = endpoint("E1", path("A", senders=["E2"]))
    variants = [
        base,
        replace(base, contact=Contact("o", "p", "e", "t")),
        replace(base, urls=("amqps://e1",)),
        replace(base, certificates=base.certificates[:2]),
        replace(base, paths=()),
        replace(base, paths=(path("A"),)),
        replace(base, paths=(path("A", senders=[]),)),
        replace(base, paths=(path("A", "DIRECT", senders=["E2"]),)),
        replace(base, modified=None),
        endpoint("E2"),
    ]
    assert len({content_id([v]) for v in variants}) == len(variants)
    limited = [broker("B1"), broker("B1", components=("E1",)), broker("B1", message_types=("A",))]
    assert len({content_id([v]) for v in limited}) == 3
