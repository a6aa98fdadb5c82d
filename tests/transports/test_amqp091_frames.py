"""Frames that we write ourselves are those of the library, octet for octet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from pamqp import body, commands, frame, header

from gridpost.core.amqp091 import Properties, Publication
from gridpost.transports.amqp091 import frames
from gridpost.transports.amqp091.properties import to_library

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
MAYBE = st.none() | TEXT
NAME = st.text("abcdefghij.", max_size=20)
PROPERTIES = st.builds(
    Properties,
    headers=st.dictionaries(NAME, TEXT | st.integers(-(2**40), 2**40) | st.booleans(), max_size=5),
    content_type=MAYBE,
    content_encoding=MAYBE,
    persistent=st.booleans(),
    priority=st.none() | st.integers(0, 255),
    correlation_id=MAYBE,
    reply_to=MAYBE,
    expiration=st.none() | st.timedeltas(timedelta(0), timedelta(days=3)),
    timestamp=st.none() | st.datetimes(datetime(1971, 1, 1), timezones=st.just(UTC)),
    type=MAYBE,
    user_id=MAYBE,
    app_id=MAYBE,
)


@given(
    st.builds(Publication, st.binary(max_size=50), PROPERTIES, NAME, NAME, st.booleans()),
    MAYBE,
    st.integers(1, 65535),
    st.integers(1, 60),
)
def test_a_publication_is_written_as_the_library_writes_it(message, message_id, channel, most):
    pieces = [message.body[at : at + most] for at in range(0, len(message.body), most)]
    expected = [
        commands.Basic.Publish(
            exchange=message.exchange, routing_key=message.routing_key, mandatory=message.mandatory
        ),
        header.ContentHeader(
            body_size=len(message.body), properties=to_library(message.properties, message_id)
        ),
        *map(body.ContentBody, pieces),
    ]
    assert frames.publication(channel, message, message_id, most) == b"".join(
        frame.marshal(each, channel) for each in expected
    )


@given(st.lists(st.integers(1, 2**63 - 1), max_size=5), st.integers(1, 65535))
def test_acknowledgements_are_written_as_the_library_writes_them(tags, channel):
    assert frames.acknowledgements(channel, tags) == b"".join(
        frame.marshal(commands.Basic.Ack(delivery_tag=tag), channel) for tag in tags
    )
