"""What ranges of journal rows say: repeats, gaps, and from when up to when a journal is here."""

from __future__ import annotations

from gridpost.pipeline.ranges import Range, gaps, marks, merged


def r(first: int, last: int, instance: str = "a") -> Range:
    """Row n was written at n * 10."""
    return Range("E1", instance, first, last, last * 10, first * 10)


def test_neighbours_become_one_range_with_the_times_of_both():
    assert merged([r(11, 20), r(1, 10), r(15, 30)]) == [r(1, 30)]


def test_a_hole_ends_what_is_complete():
    (mark,) = marks([r(1, 10), r(21, 30)]).values()
    assert (mark.sequence, mark.time, mark.missing, mark.since) == (10, 100, 10, 0)
    assert [(g.first, g.last) for g in gaps([r(1, 10), r(21, 30)])] == [(11, 20)]


def test_a_journal_without_its_first_rows_is_known_since_its_oldest_one():
    (mark,) = marks([r(11, 30)]).values()
    assert (mark.sequence, mark.time, mark.since) == (30, 300, 110)
    assert [(g.first, g.last) for g in gaps([r(11, 30)])] == [(1, 10)]
    # The rows came late: now nothing is missing.
    (mark,) = marks([r(11, 30), r(1, 10)]).values()
    assert mark.since == 0
    # Of two journals the one that begins later decides.
    (mark,) = marks([r(1, 5, "a"), r(11, 30, "b")]).values()
    assert mark.since == 110
