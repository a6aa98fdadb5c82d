"""The strict parser: what it refuses, how quickly, and in how much memory."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.xml import Schema, XmlLimits, load_schema, parse, schema_tree
from support.child import run_python

SMALL = XmlLimits(
    max_bytes=2_000,
    max_depth=5,
    max_elements=10,
    max_attributes=6,
    max_attributes_per_element=4,
    max_attribute_length=20,
)


def refused(data: bytes | str, limits: XmlLimits = SMALL) -> Rule:
    with pytest.raises(Refusal) as caught:
        parse(data, limits)
    assert len(caught.value.message) < 500
    return caught.value.rule


@pytest.mark.parametrize(
    "data",
    [
        b"<a>x</a>",
        b"\xef\xbb\xbf<a>x</a>",
        b"<?xml version='1.0'?><a>x</a>",
        b'<?xml version="1.0" encoding="utf-8" standalone="yes" ?>\n<a>x</a>',
        '<?xml version="1.0" encoding="UTF-16"?><a>x</a>'.encode("utf-16"),
        "<a>x</a>".encode("utf-16"),
        b"\xfe\xff" + "<a>x</a>".encode("utf-16-be"),
        "<a>x</a>",
        "\ufeff<a>x</a>",
        '<?xml version="1.0" encoding="UTF-8"?><a>x</a>',
        '<?xml version="1.0" encoding="UTF-16"?><a>x</a>',
        b"<!-- one --><?two three?>\n<a>x</a><!-- four -->",
    ],
)
def test_utf_8_utf_16_and_text_are_read_with_and_without_declaration(data: bytes | str) -> None:
    assert parse(data).text == "x"


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b'<?xml version="1.0" encoding="ISO-8859-1"?><a>\xe9</a>', Rule.FORBIDDEN_XML),
        (b'<?xml version="1.0" encoding="UTF-16"?><a/>', Rule.FORBIDDEN_XML),
        ('<?xml version="1.0" encoding="UTF-8"?><a/>'.encode("utf-16"), Rule.FORBIDDEN_XML),
        ('<?xml version="1.0" encoding="EBCDIC-CP-US"?><a/>', Rule.FORBIDDEN_XML),
        (b'<?xml version="1.1"?><a/>', Rule.FORBIDDEN_XML),
        (b'<?xml vers="1.0"?><a/>', Rule.MALFORMED_XML),
        (b"\xff\xfe<\x00a", Rule.MALFORMED_XML),
        ("<a>\ud800</a>", Rule.MALFORMED_XML),
        (b"<a>\xed\xa0\x80</a>", Rule.MALFORMED_XML),
        ("<a/>".encode("utf-16-le"), Rule.MALFORMED_XML),
        ("<a/>".encode("utf-32"), Rule.MALFORMED_XML),
        (b"<a>\x00</a>", Rule.MALFORMED_XML),
        (b"<a>\xff</a>", Rule.MALFORMED_XML),
        (b"", Rule.MALFORMED_XML),
        (b"hello", Rule.MALFORMED_XML),
        (b"<a>", Rule.MALFORMED_XML),
        (b"<a/><b/>", Rule.MALFORMED_XML),
        (b"<a>&undeclared;</a>", Rule.MALFORMED_XML),
        (b"<x:a/>", Rule.MALFORMED_XML),
    ],
)
def test_other_encodings_and_broken_documents_are_refused(data: bytes | str, rule: Rule) -> None:
    assert refused(data) is rule


DOCTYPES = [
    "<!DOCTYPE a>",
    '<!DOCTYPE a SYSTEM "file:///etc/passwd">',
    '<!DOCTYPE a PUBLIC "x" "http://127.0.0.1:1/x.dtd">',
    '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
    '<!DOCTYPE a [<!ENTITY % x SYSTEM "http://127.0.0.1:1/x.dtd"> %x;]>',
    "<!DOCTYPE a [<!ATTLIST a b CDATA 'default'>]>",
]


@pytest.mark.parametrize("doctype", DOCTYPES)
@pytest.mark.parametrize(
    "before", ["", "\ufeff", '<?xml version="1.0"?>', "<!-- > --><?x <!-- ?>\r\n\t ", "<?x?><?y?>"]
)
def test_a_document_type_is_refused_wherever_it_may_stand(doctype: str, before: str) -> None:
    text = f"{before}{doctype}<a>&x;</a>"
    assert refused(text) is Rule.FORBIDDEN_XML
    assert refused(text.encode()) is Rule.FORBIDDEN_XML
    utf_16 = text.removeprefix("\ufeff").encode("utf-16")
    assert refused(utf_16) is Rule.FORBIDDEN_XML


def test_text_that_looks_like_a_document_type_is_only_text() -> None:
    assert parse(b"<!-- <!DOCTYPE a> --><a><![CDATA[<!DOCTYPE a>]]></a>").text == "<!DOCTYPE a>"


def test_sections_of_character_data_are_read_as_one_text() -> None:
    assert parse(b"<a>x<![CDATA[<y>]]>&#13;&amp;z</a>").text == "x<y>\r&z"


@pytest.mark.parametrize(
    "inside", ["x<!-- y -->z", "<!-- y -->", "<?y z?>x", "x<?y z?>", "<![CDATA[x]]><!-- y -->"]
)
def test_a_comment_or_instruction_inside_a_value_is_refused(inside: str) -> None:
    assert refused(f"<a><b>{inside}</b></a>") is Rule.FORBIDDEN_XML


def test_comments_and_instructions_between_elements_are_harmless() -> None:
    assert [b.text for b in parse(b"<a><!-- x --><b>1</b><?y z?><b>2</b></a>").iter("b")] == [
        "1",
        "2",
    ]


@pytest.mark.parametrize(
    ("fits", "exceeds"),
    [
        (b"<a>" + b"x" * 1_993 + b"</a>", b"<a>" + b"x" * 1_994 + b"</a>"),
        ("<a>" + "é" * 996 + "</a>", "<a>" + "é" * 997 + "</a>"),
        (b"<a><a><a><a><a/></a></a></a></a>", b"<a><a><a><a><a><a/></a></a></a></a></a>"),
        (b"<a>" + b"<b/>" * 9 + b"</a>", b"<a>" + b"<b/>" * 10 + b"</a>"),
        (
            b"<a>" + b"<b x='1' y='2'/>" * 3 + b"</a>",
            b"<a z='3'>" + b"<b x='1' y='2'/>" * 3 + b"</a>",
        ),
        (
            b"<a xmlns:p='1' xmlns:q='2'><b x='' y='' p:z='' q:z=''/></a>",
            b"<a xmlns:p='1' xmlns:q='2' xmlns='3'><b x='' y='' p:z='' q:z=''/></a>",
        ),
        (b"<a x='' y='' z='' u=''/>", b"<a x='' y='' z='' u='' v=''/>"),
        (b"<a xmlns:p='1' xmlns:q='2' x='' y=''/>", b"<a xmlns:p='1' xmlns:q='2' x='' y='' z=''/>"),
        (
            b"<a x='' y='=' z = '\">=' u=\"'/>\">a=''</a>",
            b"<a x='' y='=' z = '\">=' u=\"'/>\"\n\tv =\n''>a=''</a>",
        ),
        (
            b"<a>" + b"<![CDATA[<<<<<<<<]]>" + b"<b/>" * 9 + b"</a>",
            b"<a>" + b"<![CDATA[<<<<<<<<]]>" + b"<b/>" * 10 + b"</a>",
        ),
        (b"<a x='" + b"y" * 20 + b"'/>", b"<a x='" + b"y" * 21 + b"'/>"),
        (b'<a xmlns="' + b"y" * 20 + b'"/>', b'<a xmlns="' + b"y" * 21 + b'"/>'),
    ],
)
def test_each_limit_lets_the_last_allowed_document_pass(
    fits: bytes | str, exceeds: bytes | str
) -> None:
    parse(fits, SMALL)
    assert refused(exceeds) is Rule.LIMIT_EXCEEDED


@pytest.mark.parametrize(
    "data",
    [
        b"<a>" + b"1 &lt; 2 = 3 " * 20 + b"</a>",
        b"<a><b><c><d/></c></b>" + b"<![CDATA[<<<<<<<<<<<<]]></a>",
        b"<a>a='" + b"x" * 50 + b"'</a>",
    ],
)
def test_text_that_only_looks_like_too_much_is_counted_exactly(data: bytes) -> None:
    parse(data, SMALL)


def test_what_looks_like_too_many_attributes_is_refused_even_as_character_data() -> None:
    crowded = b"<b x='' y='' z='' u='' v=''/>"
    assert refused(b"<a><![CDATA[" + crowded + b"]]></a>") is Rule.LIMIT_EXCEEDED


def test_a_broken_document_that_must_be_counted_is_refused_as_broken() -> None:
    assert refused(b"<a>a='" + b"x" * 50 + b"'") is Rule.MALFORMED_XML


def test_a_deep_document_among_many_elements_is_refused_as_well() -> None:
    many = b"<![CDATA[" + b"<" * 20 + b"]]>"
    assert refused(b"<a>" * 6 + many + b"</a>" * 6) is Rule.LIMIT_EXCEEDED


BOMB = (
    '<!DOCTYPE a [<!ENTITY e0 "lol">'
    + "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
    + "]><a>&e11;</a>"
)
HUGE = 100 * 1024 * 1024
OPEN = XmlLimits(
    max_bytes=200 * 1024 * 1024,
    max_depth=100_000,
    max_elements=10**9,
    max_attributes=10**9,
    max_attributes_per_element=10**9,
    max_attribute_length=10**9,
)
HOSTILE: dict[str, Callable[[], bytes | str]] = {
    "entity bomb": lambda: BOMB,
    "100 MB attribute": lambda: b"<a x='" + b"y" * HUGE + b"'/>",
    "100 MB name": lambda: b"<" + b"y" * HUGE + b"/>",
    "100 MB text": lambda: b"<a>" + b"y" * HUGE + b"</a>",
    "100 MB comment": lambda: b"<!--" + b"y" * HUGE,
    "100 MB declaration": lambda: b"<?xml version='" + b"1" * HUGE,
    "deep nesting": lambda: b"<a>" * 2_000_000,
    "deep but small": lambda: b"<a>" * 300 + b"</a>" * 300,
    "many elements": lambda: b"<a>" + b"<b/>" * 2_000_000 + b"</a>",
    "many attributes": lambda: b"<a " + b" ".join(b"a%d=''" % i for i in range(500_000)) + b"/>",
    "many elements behind character data": lambda: (
        b"<a><![CDATA[" + b"<" * 300_000 + b"]]>" + b"<b c='d'/>" * 700_000 + b"</a>"
    ),
    "many namespaces": lambda: (
        b"<a " + b" ".join(b"xmlns:a%d='u'" % i for i in range(400_000)) + b"/>"
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_document_is_refused_quickly_and_in_little_memory(name: str) -> None:
    data = HOSTILE[name]()
    # The lowest of three tries: what else this process does at the moment counts too.
    rules, costs, sizes = zip(*(cost_of_refusing(data) for _ in range(3)), strict=True)
    # Not much more than reading what is allowed: the largest document of usual form.
    assert min(costs) < 30 * allowed_cost()
    assert min(sizes) < 120
    assert set(rules) <= {Rule.FORBIDDEN_XML, Rule.LIMIT_EXCEEDED}


def cost_of_refusing(data: bytes | str) -> tuple[Rule, float, float]:
    """The rule, seconds of the processor, megabytes."""
    # Linux: set the high water mark back to what is in use now.
    Path("/proc/self/clear_refs").write_text("5")
    before, start = high_water_mark(), time.process_time()
    rule = refused(data, XmlLimits())
    return rule, time.process_time() - start, high_water_mark() - before


@cache
def allowed_cost() -> float:
    """Processor time for a document just within the limits, at this moment on this machine."""
    limits = XmlLimits()
    data = b"<a>" + b"<b c='d'>e</b>" * (limits.max_elements - 1) + b"</a>"
    start = time.process_time()
    parse(data, limits)
    return time.process_time() - start


def high_water_mark() -> float:
    """Megabytes of memory that this process has had at most."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


@pytest.mark.parametrize("name", ["100 MB attribute", "100 MB name", "100 MB text", "deep nesting"])
def test_limits_opened_wide_still_end_at_those_of_the_parser(name: str) -> None:
    assert refused(HOSTILE[name](), OPEN) is Rule.LIMIT_EXCEEDED


NEW_NAMES = """
import resource, sys
from gridpost.core.refusal import Refusal
from gridpost.wire.mades import metadata
from gridpost.wire.xml import parse

def megabytes():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20

def names(round):
    return "".join(f"<n{round}x{j}{'y' * 480}/>" for j in range(1000))

for round in range(120):
    document = f"<a>{names(round)}</a>"
    parse(document)
    for bad in (document, f"<a>&n{round}{'y' * 40_000};</a>", f"<a></n{round}{'y' * 40_000}>"):
        try:
            metadata.decode(bad)
        except Refusal:
            pass
    if round == 20:
        before = megabytes()
print(megabytes() - before)
"""


def test_documents_with_ever_new_names_leave_nothing_in_the_process() -> None:
    # One hundred rounds of a megabyte of names: without care all of it stays for ever.
    done = subprocess.run(
        [sys.executable, "-c", NEW_NAMES],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 15


def outcome(data: bytes | str, limits: XmlLimits) -> Rule | None:
    try:
        root = parse(data, limits)
    except Refusal as refusal:
        return refusal.rule
    assert root.getroottree().docinfo.internalDTD is None
    return None


@given(st.binary(max_size=300))
@example(b"<?xml version='1.0'?>")
def test_octets_are_parsed_or_refused(data: bytes) -> None:
    assert outcome(data, SMALL) in (
        None,
        Rule.FORBIDDEN_XML,
        Rule.MALFORMED_XML,
        Rule.LIMIT_EXCEEDED,
    )


PIECES = [
    "<a>", "</a>", "<b x='1'>", "</b>", "<!--", "-->", "<?x", "?>", "<![CDATA[", "]]>", "<!DOCTYPE a",
    "[", "]", ">", "&amp;", "&x;", "'", '"', " ", "\n", "text", "<?xml version='1.0'?>", "\x00",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_no_arrangement_of_markup_brings_a_document_type_in(text: str) -> None:
    assert outcome(text, XmlLimits()) in (None, Rule.FORBIDDEN_XML, Rule.MALFORMED_XML)


def test_a_schema_is_compiled_once_and_names_line_and_fault() -> None:
    schema = load_schema("internalMessaging.xsd")
    assert load_schema("internalMessaging.xsd") is schema
    with pytest.raises(Refusal) as caught:
        schema.read(b"<a>\n<b/>\n</a>")
    assert caught.value.rule is Rule.SCHEMA_INVALID
    assert "internalMessaging.xsd; line 1: Element 'a'" in caught.value.message


def test_the_first_faults_are_named_and_foreign_text_in_them_is_cut() -> None:
    schema = load_schema("internalMessaging.xsd")
    value = "9" * 10_000
    fields = "<messageID/><receiverCode/><messageType/>"
    text = (
        f'<m:messageMetadata xmlns:m="http://mades.entsoe.eu/internalMessaging">{fields}'
        f"<generated>{value}</generated><senderCode/><internalType>{value}</internalType>"
        f"<processingMetadata><messageProcessors/></processingMetadata>"
        f"<messageMversion>{value}</messageMversion></m:messageMetadata>"
    )
    with pytest.raises(Refusal) as caught:
        schema.read(text)
    assert "generated" in caught.value.message
    assert "internalType" in caught.value.details
    assert len(caught.value.message + caught.value.details) < 2_000


def test_a_schema_location_in_a_document_is_not_followed() -> None:
    schema = load_schema("internalMessaging.xsd")
    with pytest.raises(Refusal) as caught:
        schema.read(
            '<a xmlns="urn:a" xmlns:i="http://www.w3.org/2001/XMLSchema-instance" '
            'i:schemaLocation="urn:a http://127.0.0.1:1/a.xsd"/>'
        )
    assert caught.value.rule is Rule.SCHEMA_INVALID


def including(location: str) -> Schema:
    tree = schema_tree("internalMessaging.xsd")
    tree.getroottree().docinfo.URL = "gridpost:/including.xsd"
    for child in list(tree):
        tree.remove(child)
    etree.SubElement(tree, "{http://www.w3.org/2001/XMLSchema}include", schemaLocation=location)
    return Schema("including.xsd", tree)


def test_a_schema_includes_its_neighbours_and_nothing_else(tmp_path: Path) -> None:
    root = parse('<m:messageMetadata xmlns:m="http://mades.entsoe.eu/internalMessaging"/>')
    with pytest.raises(Refusal, match="Missing child element"):
        including("internalMessaging.xsd").validate(root)
    outside = tmp_path / "outside.xsd"
    outside.write_bytes(etree.tostring(schema_tree("internalMessaging.xsd")))
    for location in (str(outside), "../__init__.py", "http://127.0.0.1:1/a.xsd"):
        with pytest.raises((OSError, ValueError, etree.XMLSchemaParseError)):
            including(location)


def test_a_document_of_a_known_shape_is_read_like_the_first_one() -> None:
    schema = Schema("a.xsd", parse(ANY_SCHEMA))
    first = schema.read("<a><b>1</b></a>")
    assert [schema.read("<a><b>&lt;2&#51;</b></a>")[0].text for _ in range(3)] == ["<23"] * 3
    assert first[0].text == "1"
    with pytest.raises(Refusal) as caught:
        schema.read("<a><b>\x01</b></a>")
    assert caught.value.rule is Rule.MALFORMED_XML


def test_a_known_shape_is_measured_again_when_the_limits_are_others() -> None:
    schema = Schema("a.xsd", parse(ANY_SCHEMA))
    document = "<a><b><c><d>1</d></c></b></a>"
    schema.read(document)
    schema.read(document, SMALL)
    with pytest.raises(Refusal) as caught:
        schema.read(document, replace(SMALL, max_depth=3))
    assert caught.value.rule is Rule.LIMIT_EXCEEDED


def test_values_of_a_known_shape_are_no_longer_than_the_limit() -> None:
    schema = Schema("a.xsd", parse(ANY_SCHEMA))
    document = "<a><b c='{}' d='e'/></a>"
    for value in ("1", "2" * 20):
        assert schema.read(document.format(value), SMALL)[0].get("c") == value
    with pytest.raises(Refusal) as caught:
        schema.read(document.format("3" * 21), SMALL)
    assert caught.value.rule is Rule.LIMIT_EXCEEDED


ANY_SCHEMA = """
<xsd:schema xmlns:xsd="http://www.w3.org/2001/XMLSchema"><xsd:element name="a"><xsd:complexType>
<xsd:sequence><xsd:any processContents="skip" minOccurs="0" maxOccurs="unbounded"/></xsd:sequence>
</xsd:complexType></xsd:element></xsd:schema>
"""


SCHEMAS_AT_ONCE = """
import threading
from lxml import etree
from gridpost.wire import xml
from gridpost.wire.mades import metadata

start, schema = threading.Barrier(8), etree.XML(
    b'<s:schema xmlns:s="http://www.w3.org/2001/XMLSchema"><s:element name="a"><s:complexType>'
    b'<s:attribute name="b" type="s:int"/></s:complexType></s:element></s:schema>'
)

def compile():
    start.wait()
    xml.Schema("a", schema)

threads = [threading.Thread(target=compile) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
xml.Schema("a", schema)
"""


def test_the_first_schemas_of_a_process_may_be_compiled_at_once() -> None:
    """libxml2 makes its built-in types with the first schema, and not safely: about one in ten failed."""
    for _ in range(10):
        assert not run_python("-c", SCHEMAS_AT_ONCE).stderr
