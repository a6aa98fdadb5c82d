"""Hypothesis strategies for what stores keep."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, get_type_hints

from hypothesis import strategies as st

from gridpost.core.delivery import Delivery, Event, Side, State, TraceEntry
from gridpost.core.instant import Instant
from gridpost.core.journal import JournalRow, SessionEvent, Standing
from gridpost.core.message import Entry, InternalType, Metadata, Processor, ValueType
from gridpost.core.message_box import BoxEntry
from gridpost.core.message_path import DIRECT, OLD_NETWORK, Route

times = st.integers(-(10**15), 4 * 10**15).map(
    lambda microseconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
)
texts = st.text(max_size=20)
ids = st.uuids().map(str)
codes = st.text("ABCxyz019-@", min_size=1, max_size=8)
routes = st.one_of(st.just(DIRECT), st.just(OLD_NETWORK), st.builds(Route, codes))
# The text of a time need not be the one we would write.
instants = st.builds(Instant, times, texts)
processors = st.lists(
    st.builds(
        Processor,
        texts,
        st.lists(st.builds(Entry, texts, st.sampled_from(ValueType), texts), max_size=3).map(tuple),
    ),
    max_size=3,
).map(tuple)
metadatas = st.builds(
    Metadata,
    message_id=ids,
    receiver_code=codes,
    message_type=codes,
    generated=instants,
    expiration_time=st.none() | instants,
    sender_code=codes,
    internal_type=st.sampled_from(InternalType),
    extension=texts,
    related_message_id=texts,
    sender_application=texts,
    ba_message_id=texts,
    processors=processors,
    message_mversion=st.integers(0, 2**31),
    sender_description=texts,
)
trace_entries = st.builds(
    TraceEntry, times, st.sampled_from(Event), st.sampled_from(State), st.booleans(), texts, texts
)


@st.composite
def box_entries(draw: st.DrawFn) -> BoxEntry:
    metadata = draw(metadatas)
    delivery = draw(
        st.builds(
            Delivery,
            st.sampled_from(Side),
            st.just(metadata.message_id),
            st.sampled_from(State),
            times,
            times,
        )
    )
    return BoxEntry(
        delivery,
        metadata,
        draw(routes),
        draw(st.binary(max_size=64)),
        draw(st.integers(0, 2**40)),
        draw(texts),
        draw(texts),
        draw(st.integers(0, 2**40)),
    )


_BY_TYPE: dict[Any, st.SearchStrategy[Any]] = {
    datetime: times,
    str: texts,
    int: st.integers(-(2**63), 2**63 - 1),
    bool: st.booleans(),
    bytes: st.binary(max_size=40),
    bytes | None: st.none() | st.binary(max_size=40),
    Side: st.sampled_from(Side),
    Event: st.sampled_from(Event),
    State: st.sampled_from(State),
    Standing: st.sampled_from(Standing),
    SessionEvent: st.sampled_from(SessionEvent),
}


def journal_rows(kind: type[JournalRow]) -> st.SearchStrategy[JournalRow]:
    """Rows of a kind; fails for a field of a type that no row had so far."""
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name.islower()}
    return st.builds(kind, **{name: _BY_TYPE[hint] for name, hint in hints.items()})
