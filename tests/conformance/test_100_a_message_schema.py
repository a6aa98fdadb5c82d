# ruff: noqa: E501
"""61968-100 Annex A: what the schema of an envelope lets pass, and what it does not."""

from __future__ import annotations

import pytest
from lxml import etree

from gridpost.core.envelope import NAMESPACE
from gridpost.envelope import (
    Error,
    ErrorObject,
    EventMessage,
    FaultMessage,
    Identifier,
    Message,
    Name,
    NameType,
    NameTypeAuthority,
    Refusal,
    RequestMessage,
    ResponseMessage,
    Rule,
    Verb,
    decode,
    decode_unchecked,
)
from gridpost.wire.envelope import schema
from gridpost.wire.xml import schema_tree
from support.envelopes import MESSAGE, WWW

HEADER = "<Header><Verb>get</Verb><Noun>Switches</Noun></Header>"
OK = "<Reply><Result>OK</Result></Reply>"
FOREIGN = '<x:E xmlns:x="urn:x"/>'


def document(body: str, kind: str = "RequestMessage", namespace: str = MESSAGE) -> str:
    return f'<{kind} xmlns="{namespace}">{body}</{kind}>'


def header(fields: str, verb: str = "get") -> str:
    return f"<Header><Verb>{verb}</Verb><Noun>Switches</Noun>{fields}</Header>"


def error(fields: str) -> str:
    return f"<Reply><Result>FAILED</Result><Error>{fields}</Error></Reply>"


def operation_set(fields: str) -> str:
    return f"{HEADER}<Payload><OperationSet>{fields}</OperationSet></Payload>"


def operation(fields: str) -> str:
    return operation_set(f"<Operation>{fields}</Operation>")


TIME = "2012-12-16T09:30:47Z"
FULL_HEADER = header(
    "<Revision>1</Revision>"
    f"<ReplayDetection><Nonce>n</Nonce><Created>{TIME}</Created></ReplayDetection>"
    f"<Context>C</Context><Timestamp>{TIME}</Timestamp><Source>S</Source>"
    "<AsyncReplyFlag>0</AsyncReplyFlag><ReplyAddress>queue:q</ReplyAddress>"
    "<AckRequired>1</AckRequired><User><UserID>u</UserID></User><MessageID>m</MessageID>"
    "<CorrelationID>c</CorrelationID><Comment>x</Comment>"
    f"<Property><Name>p</Name></Property>{FOREIGN}"
)

# requirement, kind, body, valid
CASES: list[tuple[str, str, str, bool]] = [
    ("100-A-d", "Message", HEADER + "<Request/>" + OK + "<Payload/>", True),
    ("100-A-d", "Message", HEADER + "<Payload/>" + OK, False),
    ("100-A-e", "RequestMessage", HEADER, True),
    ("100-A-e", "RequestMessage", HEADER + "<Request/>", True),
    ("100-A-e", "RequestMessage", HEADER + OK, False),
    ("100-A-e", "RequestMessage", HEADER + "<Request/><Request/>", False),
    ("100-A-f", "ResponseMessage", HEADER + OK, True),
    ("100-A-f", "ResponseMessage", HEADER, False),
    ("100-A-f", "ResponseMessage", HEADER + "<Request/>" + OK, False),
    ("100-A-g", "EventMessage", HEADER + "<Payload/>", True),
    ("100-A-g", "EventMessage", HEADER + OK, False),
    ("100-A-g", "EventMessage", "<Payload/>", False),
    ("100-6.3.6-a", "FaultMessage", error("<code>1</code>"), True),
    ("100-6.3.6-a", "FaultMessage", "", False),
    ("100-6.3.6-a", "FaultMessage", HEADER + OK, False),
    ("100-A-h", "RequestMessage", FULL_HEADER, True),
    ("100-A-h", "RequestMessage", "<Header><Noun>Switches</Noun></Header>", False),
    ("100-A-h", "RequestMessage", "<Header><Verb>get</Verb></Header>", False),
    (
        "100-A-h",
        "RequestMessage",
        header("<CorrelationID>c</CorrelationID><MessageID>m</MessageID>"),
        False,
    ),
    *(
        ("100-A-i", "RequestMessage", header(f"<AckRequired>{text}</AckRequired>"), good)
        for text, good in (("true", True), ("false", True), ("1", True), ("0", True), ("yes", False))
    ),
    ("100-A-i", "RequestMessage", header("<Timestamp>2012-12-16</Timestamp>"), False),
    ("100-6.3.2-h", "RequestMessage", header("<AsyncReplyFlag>maybe</AsyncReplyFlag>"), False),
    ("100-6.3.2-m", "RequestMessage", header("<AckRequired>maybe</AckRequired>"), False),
    ("100-6.3.2-f", "RequestMessage", header("<Timestamp>16.12.2012 09:30</Timestamp>"), False),
    *(
        ("100-A-j", "RequestMessage", header("", verb), True)
        for verb in map(str, Verb)
    ),
    *(
        ("100-A-j", "RequestMessage", header("", verb), False)
        for verb in ("update", "show", "publish", "cancelled", "GET", "")
    ),
    ("100-6.2.2-b", "RequestMessage", header("", "Get"), False),
    (
        "100-A-k",
        "RequestMessage",
        header(f"<ReplayDetection><Created>{TIME}</Created><Nonce>n</Nonce></ReplayDetection>"),
        False,
    ),
    ("100-A-k", "RequestMessage", header("<ReplayDetection><Nonce>n</Nonce></ReplayDetection>"), False),
    ("100-A-l", "RequestMessage", header("<User><Organization>o</Organization></User>"), False),
    ("100-A-l", "RequestMessage", header("<User><UserID>u</UserID></User>"), True),
    ("100-A-m", "RequestMessage", header("<Property><Name>n</Name></Property>"), True),
    ("100-A-m", "RequestMessage", header("<Property><name>n</name></Property>"), False),
    (
        "100-A-n",
        "RequestMessage",
        HEADER + f"<Request><StartTime>{TIME}</StartTime><EndTime>{TIME}</EndTime><Option><name>n"
        f"</name></Option><ID>i</ID>{FOREIGN}</Request>",
        True,
    ),
    (
        "100-A-n",
        "RequestMessage",
        HEADER + "<Request><ID>i</ID><Option><name>n</name></Option></Request>",
        False,
    ),
    ("100-A-o", "RequestMessage", HEADER + "<Request><Option><name>n</name></Option></Request>", True),
    ("100-A-o", "RequestMessage", HEADER + "<Request><Option><Name>n</Name></Option></Request>", False),
    (
        "100-A-p",
        "FaultMessage",
        f"<Reply><Result>OK</Result><ID>i</ID>{FOREIGN}<operationId>1</operationId></Reply>",
        True,
    ),
    (
        "100-A-p",
        "FaultMessage",
        "<Reply><Result>OK</Result><operationId>1</operationId><ID>i</ID></Reply>",
        False,
    ),
    ("100-A-p", "FaultMessage", "<Reply><ID>i</ID></Reply>", False),
    *(
        ("100-A-q", "FaultMessage", f"<Reply><Result>{text}</Result></Reply>", good)
        for text, good in (
            ("OK", True), ("PARTIAL", True), ("FAILED", True), ("FATAL", False), ("ok", False), ("", False),
        )
    ),
    ("100-A-s", "RequestMessage", HEADER + f"<Payload>{FOREIGN}{FOREIGN}<Format>XML</Format></Payload>", True),
    ("100-A-s", "RequestMessage", HEADER + "<Payload><Compressed>x</Compressed><Format>CSV</Format></Payload>", True),
    ("100-A-s", "RequestMessage", HEADER + "<Payload><ID>a</ID><ID>b</ID><Format>X</Format></Payload>", True),
    ("100-A-s", "RequestMessage", HEADER + "<Payload><Compressed>x</Compressed><ID>a</ID></Payload>", False),
    ("100-A-s", "RequestMessage", HEADER + "<Payload><Format>X</Format><ID>a</ID></Payload>", False),
    ("100-6.3.4-m", "RequestMessage", HEADER + "<Payload><ID>a</ID><format>X</format></Payload>", False),
    ("100-6.3.4-m", "FaultMessage", error("<Code>1</Code>"), False),
    ("100-6.10.1-k", "RequestMessage", HEADER + "<Payload><OperationSet/><OperationSet/></Payload>", False),
    (
        "100-A-t",
        "RequestMessage",
        operation_set(
            "<enforceMsgSequence>true</enforceMsgSequence>"
            "<enforceTransactionalIntegrity>true</enforceTransactionalIntegrity>"
            "<Operation><operationId>1</operationId></Operation>"
        ),
        True,
    ),
    (
        "100-A-t",
        "RequestMessage",
        operation_set(
            "<enforceTransactionalIntegrity>true</enforceTransactionalIntegrity>"
            "<enforceMsgSequence>true</enforceMsgSequence>"
        ),
        False,
    ),
    (
        "100-A-t",
        "RequestMessage",
        operation_set(
            "<Operation><operationId>1</operationId></Operation>"
            "<enforceMsgSequence>true</enforceMsgSequence>"
        ),
        False,
    ),
    (
        "100-A-u",
        "RequestMessage",
        operation(
            "<operationId>1</operationId><noun>N</noun><verb>create</verb>"
            f"<elementOperation>false</elementOperation>{FOREIGN}"
        ),
        True,
    ),
    ("100-A-u", "RequestMessage", operation("<operationId>1</operationId><verb>v</verb><noun>N</noun>"), False),
    ("100-A-u", "RequestMessage", operation(f"<operationId>1</operationId>{FOREIGN}{FOREIGN}"), False),
    ("100-A-u", "RequestMessage", operation("<operationId>a1</operationId>"), False),
    ("100-6.10.1-c", "RequestMessage", operation("<noun>N</noun>"), False),
    ("100-A-w", "RequestMessage", HEADER + '<Payload><n xmlns=""/></Payload>', False),
    ("100-A-w", "RequestMessage", HEADER + "<Payload><Foo/></Payload>", False),
    ("100-A-w", "RequestMessage", HEADER + f"<Payload>{FOREIGN}</Payload>", True),
    (
        "100-A-y",
        "FaultMessage",
        error(
            "<code>1</code><level>FATAL</level><reason>r</reason><details>d</details>"
            "<xpath>m:Switch</xpath><stackTrace>s</stackTrace><Location><node>n</node></Location>"
            "<ID>i</ID><relatedID>j</relatedID><object><mRID>k</mRID></object>"
            "<operationId>3</operationId>"
        ),
        True,
    ),
    ("100-A-y", "FaultMessage", error("<code>1</code><details>d</details><reason>r</reason>"), False),
    ("100-A-y", "FaultMessage", error("<reason>r</reason>"), False),
    ("100-6.3.4-c", "FaultMessage", error("<reason>r</reason>"), False),
    *(
        ("100-A-z", "FaultMessage", error(f"<code>1</code><level>{text}</level>"), good)
        for text, good in (
            ("INFORM", True), ("WARNING", True), ("FATAL", True), ("CATASTROPHIC", True),
            ("ERROR", False), ("warning", False),
        )
    ),
    ("100-A-ac", "FaultMessage", error("<code>1</code><Location><stage>s</stage></Location>"), True),
    (
        "100-A-ac",
        "FaultMessage",
        error("<code>1</code><Location><stage>s</stage><node>n</node></Location>"),
        False,
    ),
    ("100-A-af", "RequestMessage", HEADER + '<Request><ID isMrid="true">i</ID></Request>', False),
    ("100-A-b", "RequestMessage", HEADER + '<Request><ID xmlns="">i</ID></Request>', False),
    (
        "100-A-b",
        "RequestMessage",
        HEADER + f'<Request><ID xmlns:m="{MESSAGE}" m:kind="uuid">i</ID></Request>',
        False,
    ),
    ("100-8.2-b", "RequestMessage", header("<UserID>u</UserID>"), False),
    ("100-8.2-b", "FaultMessage", "<Reply><result>OK</result></Reply>", False),
]  # fmt: skip
_SHARED = {
    "100-6.3.6-a", "100-6.3.2-h", "100-6.3.2-m", "100-6.10.1-c", "100-6.3.4-c", "100-8.2-b",
}  # fmt: skip


def _mark(requirement: str) -> pytest.MarkDecorator:
    if requirement in _SHARED:
        return pytest.mark.req(requirement, component="envelope")
    return pytest.mark.req(requirement)


@pytest.mark.parametrize(
    ("kind", "body", "valid"),
    [
        pytest.param(kind, body, valid, marks=_mark(row), id=f"{row}-{number}")
        for number, (row, kind, body, valid) in enumerate(CASES)
    ],
)
def test_the_schema_decides_the_form(kind: str, body: str, valid: bool) -> None:
    for namespace in (MESSAGE, WWW):
        root = etree.fromstring(document(body, kind).replace(MESSAGE, namespace))
        if valid:
            schema(namespace).validate(root)
        else:
            with pytest.raises(Refusal) as refused:
                schema(namespace).validate(root)
            assert refused.value.rule is Rule.SCHEMA_INVALID


@pytest.mark.req("100-A-c")
def test_the_root_says_what_kind_of_message_it_is() -> None:
    roots = {
        "RequestMessage": (HEADER, RequestMessage),
        "ResponseMessage": (HEADER + OK, ResponseMessage),
        "EventMessage": (HEADER, EventMessage),
        "FaultMessage": (OK, FaultMessage),
        "Message": (HEADER, Message),
    }
    for kind, (body, type_) in roots.items():
        assert type(decode_unchecked(document(body, kind))) is type_
    for kind in ("Header", "Payload", "Nothing"):
        with pytest.raises(Refusal) as refused:
            decode(document(HEADER, kind))
        assert refused.value.rule is Rule.ENVELOPE_FORM


@pytest.mark.req("100-A-a")
def test_a_foreign_namespace_is_refused_by_name() -> None:
    with pytest.raises(Refusal) as refused:
        decode(document(HEADER, namespace="http://iec.ch/TC57/2099/schema/message"))
    assert refused.value.rule is Rule.ENVELOPE_FORM
    assert NAMESPACE in refused.value.message
    with pytest.raises(Refusal):
        decode(f"<RequestMessage>{HEADER}</RequestMessage>")


@pytest.mark.req("100-A-b")
@pytest.mark.req("100-10-f")
def test_the_schema_has_the_version_and_forms_of_the_standard() -> None:
    root = schema_tree("envelope/Message.xsd")
    assert root.get("targetNamespace") == NAMESPACE
    assert root.get("elementFormDefault") == "qualified"
    assert root.get("attributeFormDefault") == "unqualified"
    assert root.get("version") == "1.0.0"


@pytest.mark.req("100-10-e")
def test_the_version_of_a_schema_decides_nothing() -> None:
    text = etree.tostring(schema_tree("envelope/Message.xsd"))
    newer = etree.XMLSchema(etree.fromstring(text.replace(b'version="1.0.0"', b'version="1.1"')))
    instance = etree.fromstring(document(FULL_HEADER))
    assert newer.validate(instance)
    schema(NAMESPACE).validate(instance)


@pytest.mark.req("100-A-x")
def test_wildcards_of_the_envelope_are_lax_and_those_of_payloads_are_skipped() -> None:
    kinds = {
        (etree.QName(parent.getparent()).localname, parent.get("processContents"))
        for parent in schema_tree("envelope/Message.xsd").iter("{*}any")
    }
    assert kinds == {("sequence", "lax"), ("choice", "skip"), ("sequence", "skip")}
    # Known to the schema and wrong: seen in a header, not looked at in a payload.
    wrong = f'<x:w xmlns:x="urn:x"><FaultMessage xmlns="{MESSAGE}"/></x:w>'
    decode_unchecked(document(HEADER + f"<Payload>{wrong}</Payload>"))
    with pytest.raises(Refusal) as refused:
        decode_unchecked(document(header(wrong)))
    assert refused.value.rule is Rule.SCHEMA_INVALID


@pytest.mark.req("100-A-ad")
@pytest.mark.req("100-A-ae")
def test_the_deprecated_object_of_an_error_is_readable() -> None:
    message = decode(
        document(
            error(
                "<code>1</code><object><mRID>m</mRID><Name><name>n</name><NameType><name>t</name>"
                "<description>d</description><NameTypeAuthority><name>a</name></NameTypeAuthority>"
                "</NameType></Name><objectType>Meter</objectType></object>"
            ),
            "FaultMessage",
        )
    )
    assert isinstance(message, FaultMessage)
    names = (Name("n", NameType("t", "d", NameTypeAuthority("a"))),)
    assert message.reply.errors == (Error("1", object=ErrorObject("m", names, "Meter")),)


@pytest.mark.req("100-6.3.4-l")
def test_an_error_may_point_to_any_place_of_a_document() -> None:
    text = error("<code>1</code><xpath>/m:Switches/m:Switch[2]</xpath><ID>i</ID>")
    message = decode(document(text, "FaultMessage"))
    assert isinstance(message, FaultMessage)
    assert message.reply.errors[0].xpath == "/m:Switches/m:Switch[2]"
    assert message.reply.errors[0].id == Identifier("i")
