"""61968-100 cl. 6: what an envelope must be beyond its schema."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gridpost.core.envelope_exchange import Guard, prevailing
from gridpost.envelope import (
    Error,
    EventMessage,
    Fragment,
    Header,
    Identifier,
    Level,
    Message,
    Operation,
    OperationSet,
    Payload,
    Reading,
    Refusal,
    Reply,
    ReplyAddress,
    Request,
    RequestMessage,
    ResponseMessage,
    Result,
    Rule,
    Sender,
    Verb,
    check,
    complete,
    content,
    correlation_of,
    decode,
    encode,
    expanded,
    failed,
    fault,
    file_payload,
    generic,
    series,
    specific,
    stream,
    unpacked,
    xml_payload,
)
from gridpost.wire.xml import XmlLimits
from support.envelopes import ANNEX_F, MESSAGE

SENDER = Sender("EMS", "TESTING")
SWITCHES = '<m:Switches xmlns:m="urn:switches"><m:Switch/></m:Switches>'
REQUEST_VERBS = ("get", "create", "change", "cancel", "close", "delete", "execute")
EVENT_VERBS = ("created", "changed", "canceled", "closed", "deleted", "executed")
CREATE_ONE = OperationSet((Operation(1, "Switches", "create", None, Fragment.parse(SWITCHES)),))


def env(row: str) -> pytest.MarkDecorator:
    return pytest.mark.req(row, component="envelope")


def rule_of(message: object) -> Rule | None:
    try:
        check(message)  # type: ignore[arg-type]
    except Refusal as refusal:
        return refusal.rule
    return None


def header(verb: str, noun: str = "Switches", **fields: object) -> Header:
    return Header(Verb(verb), noun, **fields)  # type: ignore[arg-type]


def payload_for(verb: str) -> tuple[str, Payload]:
    if verb == "execute":
        return "OperationSet", Payload(operation_set=CREATE_ONE)
    if verb == "executed":
        done = replace(CREATE_ONE.operations[0], verb="created")
        return "OperationSet", Payload(operation_set=OperationSet((done,)))
    return "Switches", xml_payload(SWITCHES)


@env("100-Table1-a")
@env("100-B-j")
@pytest.mark.req("100-6.3.5-a")
def test_verb_and_kind_of_message_agree() -> None:
    for verb in Verb:
        noun, payload = payload_for(verb)
        top = header(verb, noun)
        request = rule_of(RequestMessage(top, None, payload))
        event = rule_of(EventMessage(top, payload))
        response = rule_of(ResponseMessage(top, Reply(Result.OK)))
        assert (request is None) == (verb in REQUEST_VERBS)
        assert (event is None) == (verb in EVENT_VERBS)
        assert (response is None) == (verb == "reply")
        for other in (request, event, response):
            assert other in (None, Rule.ENVELOPE_VERB)


@pytest.mark.req("100-6.2.2-c")
@env("100-6.3.2-a")
def test_deprecated_verbs_are_read_as_what_they_mean_and_never_written() -> None:
    for old, new, kind, body in (
        ("update", Verb.CHANGE, "RequestMessage", f"<Payload>{SWITCHES}</Payload>"),
        ("updated", Verb.CHANGED, "EventMessage", f"<Payload>{SWITCHES}</Payload>"),
        ("show", Verb.REPLY, "ResponseMessage", "<Reply><Result>OK</Result></Reply>"),
    ):
        text = (
            f'<{kind} xmlns="{MESSAGE}"><Header><Verb>{old}</Verb><Noun>Switches</Noun>'
            f"</Header>{body}</{kind}>"
        )
        message = decode(text)
        assert isinstance(message, RequestMessage | EventMessage | ResponseMessage)
        assert message.header.verb is new
        assert f">{old}<".encode() not in encode(message)


@env("100-6.2.2-d")
def test_what_belongs_to_the_transport_is_no_verb() -> None:
    for verb in ("subscribe", "unsubscribe", "publish"):
        text = (
            f'<RequestMessage xmlns="{MESSAGE}"><Header><Verb>{verb}</Verb><Noun>N</Noun></Header>'
            "</RequestMessage>"
        )
        with pytest.raises(Refusal) as refused:
            decode(text)
        assert refused.value.rule is Rule.SCHEMA_INVALID


@env("100-6.2.4-a")
@env("100-6.2.4-b")
@env("100-6.2.4-c")
@env("100-6.2.4-e")
@env("100-6.2.4-i")
@env("100-6.2.4-j")
def test_a_payload_is_there_where_it_must_be() -> None:
    required = {"create", "change", "execute", "created", "changed", "executed"}
    for verb in (*REQUEST_VERBS, *EVENT_VERBS):
        noun, payload = payload_for(verb)
        kind = RequestMessage if verb in REQUEST_VERBS else EventMessage
        for empty in (None, Payload()):
            expected = Rule.ENVELOPE_PAYLOAD if verb in required else None
            assert rule_of(kind(header(verb, noun), payload=empty)) is expected
        assert rule_of(kind(header(verb, noun), payload=payload)) is None


@pytest.mark.req("100-7-c")
@pytest.mark.req("100-Table2-a")
@pytest.mark.req("100-Table2-d")
def test_the_payload_is_named_like_the_noun() -> None:
    payload = xml_payload(SWITCHES)
    assert rule_of(RequestMessage(header("create"), None, payload)) is None
    assert rule_of(RequestMessage(header("create"), None, replace(payload, format="XML"))) is None
    wrong = RequestMessage(header("create", "Meters"), None, payload)
    assert rule_of(wrong) is Rule.ENVELOPE_NOUN
    graph = Fragment.parse('<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/>')
    rdf = RequestMessage(header("create"), None, Payload((graph,), format="RDF"))
    assert rule_of(rdf) is None


@env("100-6.10.1-a")
@env("100-6.10.1-b")
@env("100-6.10.1-d")
@env("100-6.10.2-a")
@env("100-6.10.3-a")
@env("100-6.10.3-b")
@env("100-A-v")
@pytest.mark.req("100-Table2-c")
def test_a_set_of_operations_keeps_its_rules() -> None:
    one = CREATE_ONE.operations[0]

    def judged(*operations: Operation, verb: str = "execute", noun: str = "OperationSet") -> object:
        kind = RequestMessage if verb in REQUEST_VERBS else EventMessage
        payload = Payload(operation_set=OperationSet(operations))
        return rule_of(kind(header(verb, noun), payload=payload))

    assert judged(one) is None
    assert judged(replace(one, noun=None)) is None
    for verb in ("create", "change", "delete"):
        assert judged(replace(one, verb=verb)) is None
        assert judged(replace(one, verb=verb), verb="executed") is Rule.OPERATION_SET
    for verb in ("created", "changed", "deleted"):
        assert judged(replace(one, verb=verb)) is Rule.OPERATION_SET
        assert judged(replace(one, verb=verb), verb="executed") is None
    for verb in ("cancel", "close", "get", "execute", None):
        assert judged(replace(one, verb=verb)) is Rule.OPERATION_SET
    assert judged() is Rule.OPERATION_SET
    assert judged(one, one) is Rule.OPERATION_SET
    assert judged(replace(one, noun="Meters")) is Rule.OPERATION_SET
    assert judged(replace(one, element_operation=True)) is Rule.OPERATION_SET
    assert judged(replace(one, verb="delete", element_operation=True)) is None
    assert judged(one, verb="create") is Rule.OPERATION_SET
    assert judged(one, noun="MeterConfig") is Rule.OPERATION_SET
    without = RequestMessage(header("execute", "OperationSet"), None, xml_payload(SWITCHES))
    assert rule_of(without) is Rule.OPERATION_SET


@env("100-6.3.1-b")
def test_a_generic_message_is_what_its_verb_says() -> None:
    payload = xml_payload(SWITCHES)
    request = RequestMessage(header("create"), None, payload)
    response = ResponseMessage(header("reply"), complete(), payload)
    event = EventMessage(header("created"), payload)
    for message in (request, response, event):
        assert specific(generic(message)) == message
        assert decode(encode(generic(message))) == generic(message)
    for wrong in (
        Message(header("reply")),
        Message(header("get"), reply=complete()),
        Message(header("created"), request=decode_request(), payload=payload),
    ):
        assert rule_of(wrong) is Rule.ENVELOPE_FORM


def decode_request() -> Request | None:
    return SENDER.request("get", "Switches", ids=["a"]).request


@env("100-5.2.5-d")
def test_an_asynchronous_request_says_where_replies_go() -> None:
    assert rule_of(RequestMessage(header("get", async_reply=True))) is Rule.ENVELOPE_REPLY_ADDRESS
    with_address = header("get", async_reply=True, reply_address="queue:q")
    assert rule_of(RequestMessage(with_address)) is None


@env("100-6.3.2-i")
@env("100-6.3.2-j")
@env("100-6.3.2-k")
def test_reply_addresses_are_topics_queues_or_urls() -> None:
    for text in ("topic:X.Y", "queue:EMS.ReplyQueue", "https://host/cb", "http://host/cb"):
        assert str(ReplyAddress.parse(text)) == text
    for text in ("ftp:x", "ftp://host/x", "queue:", "EMS.ReplyQueue", "", "topic:" + "x" * 256):
        with pytest.raises(Refusal) as refused:
            ReplyAddress.parse(text)
        assert refused.value.rule is Rule.ENVELOPE_REPLY_ADDRESS


def test_replies_and_events_are_correlated_with_their_request() -> None:
    both = replace(SENDER.request("create", "Switches", SWITCHES).header, correlation_id="c")
    assert correlation_of(both) == "c"
    only = replace(both, correlation_id=None)
    assert correlation_of(only) == only.message_id
    assert correlation_of(replace(only, message_id=None)) is None


@pytest.mark.req("100-6.4-e")
def test_an_event_says_what_was_deleted_by_the_ids_of_the_request() -> None:
    request = SENDER.request("delete", "Switches", ids=["a", "b"])
    event = SENDER.event_of(request)
    assert event is not None
    assert event.header.verb is Verb.DELETED
    assert event.payload == Payload(ids=(Identifier("a"), Identifier("b")))
    check(event)
    created = SENDER.request("create", "Switches", SWITCHES)
    told = SENDER.event_of(created)
    assert told is not None
    assert told.payload == created.payload
    assert SENDER.event_of(SENDER.request("get", "Switches")) is None


@env("100-6.3.4-a")
@env("100-6.3.4-b")
@env("100-6.3.4-c")
def test_replies_say_whether_they_are_all_there_is() -> None:
    assert (complete().result, complete().codes) == (Result.OK, {"0.0"})
    assert not complete().more_follow
    bad = Error("X", Level.FATAL)
    assert complete(warnings=[bad]).result is Result.PARTIAL
    first, second, last = series([complete(), complete(warnings=[bad]), complete()])
    assert [r.result for r in (first, second, last)] == [Result.PARTIAL] * 3
    assert [r.codes for r in (first, second, last)] == [{"0.1"}, {"0.1", "X"}, {"0.2"}]
    assert [r.more_follow for r in (first, second, last)] == [True, True, False]
    assert not Reply(Result.OK).more_follow
    assert not failed(bad).more_follow
    single = complete()
    assert list(series([single])) == [single]


def test_our_own_fault_tells_no_stranger_how_we_work() -> None:
    inside = fault(Refusal(Rule.INTERNAL, "something broke", "Traceback: secret"))
    written = encode(inside)
    assert b"secret" not in written
    assert b"INTERNAL" in written


@env("100-6.3.2-c")
@pytest.mark.req("100-6.3.2-o")
@pytest.mark.req("100-6.9-a")
@pytest.mark.req("100-6.3.2-g")
def test_no_two_messages_of_a_sender_share_an_id_or_a_nonce() -> None:
    now = datetime(2026, 11, 16, 5, tzinfo=UTC)
    messages = [
        # A new sender as after a restart.
        Sender("EMS", now=lambda: now).request("get", "Switches").header
        for _ in range(20_000)
    ]
    for ids in (
        {m.message_id for m in messages},
        {m.correlation_id for m in messages},
        {m.replay_detection.nonce for m in messages if m.replay_detection},
    ):
        assert len(ids) == len(messages)
    assert {m.replay_detection.created.at for m in messages if m.replay_detection} == {now}
    assert {m.source for m in messages} == {"EMS"}


@pytest.mark.req("100-6.11-a")
def test_a_server_writes_local_time_with_the_offset_that_holds() -> None:
    chicago = ZoneInfo("America/Chicago")
    summer = prevailing(datetime(2007, 3, 27, 19, tzinfo=UTC), chicago)
    winter = prevailing(datetime(2007, 11, 27, 20, tzinfo=UTC), chicago)
    assert summer.text == "2007-03-27T14:00:00.000-05:00"
    assert winter.text == "2007-11-27T14:00:00.000-06:00"


def request_at(text: str) -> str:
    return (
        f'<RequestMessage xmlns="{MESSAGE}"><Header><Verb>get</Verb><Noun>N</Noun>'
        f"<Timestamp>{text}</Timestamp></Header></RequestMessage>"
    )


@pytest.mark.req("100-6.3.2-f")
@pytest.mark.req("100-6.3.3-c")
def test_times_have_an_offset_or_a_known_zone() -> None:
    def read(text: str, zone: ZoneInfo | None = None) -> str:
        message = decode(request_at(text), Reading(zone=zone))
        assert isinstance(message, RequestMessage)
        assert message.header.timestamp is not None
        assert message.header.timestamp.text == text
        return message.header.timestamp.at.isoformat()

    assert read("2012-12-16T09:30:47Z") == "2012-12-16T09:30:47+00:00"
    assert read("2012-12-16T09:30:47+02:00") == "2012-12-16T07:30:47+00:00"
    assert read("2012-12-17T24:00:00.0Z") == "2012-12-18T00:00:00+00:00"
    assert read("2012-12-16T09:30:47", ZoneInfo("Europe/Berlin")) == "2012-12-16T08:30:47+00:00"
    for wrong in ("2012-12-16T09:30:47", "2012-12-17T24:00:01Z", "99999-01-01T00:00:00Z"):
        with pytest.raises(Refusal):
            read(wrong)


NOW = datetime(2026, 11, 16, 5, tzinfo=UTC)
GUARD = Guard(frozenset({"PRODUCTION", "TESTING"}))


def guarded(guard: Guard, head: Header, destination: str = "TESTING") -> Rule | None:
    try:
        guard.check(head, destination=destination, now=NOW)
    except Refusal as refusal:
        return refusal.rule
    return None


@env("100-6.3.2-e")
@env("100-6.3.2-n")
def test_a_receiver_demands_context_revision_user_and_freshness() -> None:
    fresh = Sender("EMS", "TESTING", now=lambda: NOW).request("get", "N").header
    assert guarded(GUARD, fresh) is None
    assert guarded(GUARD, replace(fresh, context=None)) is None
    for context, destination in (
        ("TRAINING", "TESTING"),
        ("PRODUCTION", "TESTING"),
        ("", "TESTING"),
    ):
        head = replace(fresh, context=context)
        assert guarded(GUARD, head, destination) is Rule.ENVELOPE_CONTEXT
    assert guarded(GUARD, replace(fresh, context=None), "STUDY") is Rule.ENVELOPE_CONTEXT
    late = replace(fresh.replay_detection, created=prevailing(NOW - timedelta(hours=1), UTC))
    assert guarded(GUARD, replace(fresh, replay_detection=late)) is Rule.ENVELOPE_STALE
    strict = replace(GUARD, user_required=True, replay_required=True, revisions=frozenset({"1"}))
    assert guarded(strict, fresh) is Rule.ENVELOPE_USER
    assert guarded(replace(strict, user_required=False), replace(fresh, replay_detection=None)) is (
        Rule.ENVELOPE_REPLAY
    )
    assert guarded(strict, replace(fresh, revision="7")) is Rule.ENVELOPE_REVISION
    assert guarded(replace(strict, user_required=False), replace(fresh, revision=None)) is None
    with pytest.raises(Refusal):
        replace(GUARD, nonces_kept=timedelta(hours=23))


# -- payloads (6.4, Table 2, Annex F)


@pytest.mark.req("100-6.4-a")
@pytest.mark.req("100-6.4-b")
@pytest.mark.req("100-F-b")
@given(st.binary(max_size=2000))
@settings(max_examples=30, deadline=None)
def test_compressed_is_gzip_then_base64_and_comes_back(data: bytes) -> None:
    for original in (data, ANNEX_F):
        payload = file_payload(original, "CSV")
        packed = b64decode(payload.compressed or "")
        assert packed[:2] == b"\x1f\x8b"
        assert gzip.decompress(packed) == original
        assert unpacked(payload) == original


@pytest.mark.req("100-Table2-e")
@pytest.mark.req("100-Table2-f")
@pytest.mark.req("100-Table2-g")
@pytest.mark.req("100-Table2-h")
@pytest.mark.req("100-Table2-i")
@pytest.mark.req("100-6.4-d")
@pytest.mark.req("100-6.4-f")
def test_every_format_of_table_2_carries_its_bytes() -> None:
    data = b"a;b\r\n1;2\r\n"
    for name in ("RDF", "PDF", "TEXT", "JSON", "CSV", "XLS", "DOC", "SHP"):
        message = RequestMessage(header("create"), None, file_payload(data, name))
        back = decode(encode(message))
        assert isinstance(back, RequestMessage)
        assert back.payload is not None
        assert not back.payload.content
        assert (back.payload.format, unpacked(back.payload)) == (name, data)
        assert gzip.decompress(b64decode(back.payload.compressed or "")) == data
    # An archive is compressed once, a binary structure not at all.
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name in ("a", "b"):
            tar.addfile(tarfile.TarInfo(name))
    for format_ in ("GZIP", "BINARY"):
        payload = file_payload(archive.getvalue(), format_)
        assert b64decode(payload.compressed or "") == archive.getvalue()
        assert unpacked(payload) == archive.getvalue()


@pytest.mark.req("100-Table2-b")
@env("100-6.4-c")
def test_large_xml_travels_compressed_and_reads_the_same() -> None:
    size = len(SWITCHES)
    small = xml_payload(SWITCHES, compress_above=size)
    large = xml_payload(SWITCHES, compress_above=size - 1)
    assert (small.compressed, large.content, large.format) == (None, (), "XML")
    assert content(small) == content(large)
    assert expanded(large).content == small.content
    without_format = replace(large, format=None)
    assert content(without_format) == content(small)


@pytest.mark.req("100-6.4-b")
@pytest.mark.req("100-F-b")
def test_broken_or_swelling_content_is_refused() -> None:
    good = file_payload(b"x" * 1000, "XML")
    cut = b64encode(b64decode(good.compressed or "")[:-9]).decode()
    for text in ("***", "AAA", cut, b64encode(zlib.compress(b"x")).decode()):
        with pytest.raises(Refusal) as refused:
            unpacked(replace(good, compressed=text))
        assert refused.value.rule is Rule.ENVELOPE_COMPRESSION
    bomb = file_payload(bytes(50_000_000), "XML")
    assert len(bomb.compressed or "") < 100_000
    taken = 0
    with pytest.raises(Refusal) as refused:
        for chunk in stream(bomb, 1_000_000):
            taken += len(chunk)
    assert refused.value.rule is Rule.LIMIT_EXCEEDED
    assert taken <= 1_000_000
    with pytest.raises(Refusal):
        content(bomb, limits=XmlLimits(max_bytes=1000))


@pytest.mark.req("100-6.3.1-a")
@pytest.mark.req("100-6.3.3-a")
def test_a_get_profile_stands_in_the_request_and_nowhere_else() -> None:
    profile = Fragment.parse('<g:GetSwitches xmlns:g="urn:get"><g:mRID>b</g:mRID></g:GetSwitches>')
    message = SENDER.request("get", "Switches", ids=["a"], profile=profile)
    assert message.payload is None
    assert message.request is not None
    assert message.request.profile("Switches") == profile
    assert message.request.profile("Meters") is None
    elsewhere = replace(
        SENDER.request("get", "Switches", ids=["a"]),
        header=replace(message.header, extensions=(profile,)),
    )
    assert elsewhere.request is not None
    assert elsewhere.request.profile("Switches") is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("<RequestMessage", Rule.MALFORMED_XML),
        ("", Rule.MALFORMED_XML),
        (f'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><RequestMessage xmlns="{MESSAGE}"/>',
         Rule.FORBIDDEN_XML),
        ("<a>" * 300 + "</a>" * 300, Rule.LIMIT_EXCEEDED),
        (request_at("x" * 9_000_000), Rule.LIMIT_EXCEEDED),
    ],
    ids=["cut", "empty", "doctype", "deep", "huge"],
)  # fmt: skip
def test_hostile_documents_are_refused(text: str, rule: Rule) -> None:
    with pytest.raises(Refusal) as refused:
        decode(text)
    assert refused.value.rule is rule or (
        text.startswith("<a>") and refused.value.rule is Rule.LIMIT_EXCEEDED
    )
