"""503 cl. 7.5, 7.8: the documents of the API. Each rule is tried on what we write, by altering it.

One set of documents serves all components: endpoints and brokers push and register with it, the
component-directory answers with it. Each row is proven on the documents that its component writes
or reads.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from importlib.resources import files

import pytest
from lxml import etree

from gridpost.core.certificate import CertificateKind
from gridpost.core.component import Component, ComponentType
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal
from gridpost.core.registration import PublicKey, RegistrationRequest, RegistrationStatus
from gridpost.core.synchronisation import Answer, Couple, Grant
from gridpost.wire.directory import (
    PeerError,
    Query,
    RegistrationAnswer,
    decode_components,
    decode_pushed,
    encode_component,
    encode_components,
    encode_error,
    encode_query,
    encode_request,
    encode_response,
)
from gridpost.wire.directory.document import NAMESPACE
from gridpost.wire.xml import load_schema
from support.builders import CONTACT, HOME, broker, component_directory, endpoint, path
from support.pki import rsa_key, shared_endpoint, spki

CERTIFICATES = shared_endpoint("E1").certificates
GRANT = Grant(HOME, "content", timedelta(minutes=1))


def _with(component: Component, *, urls: tuple[str, ...] = ("amqps://x",)) -> Component:
    return replace(component, certificates=CERTIFICATES[:2], urls=urls)


ENDPOINT = _with(endpoint("E1", path("A*", senders=["X"]), path("B")))
BROKER = _with(broker("B1", components=("E1",), message_types=("A",)))
DIRECTORY = _with(component_directory(), urls=("https://x",))

# What each component writes or reads of the shared types: a push, or an answer.
DOCUMENTS: dict[str, bytes] = {
    "endpoint": encode_component(ENDPOINT),
    "broker": encode_component(BROKER),
    "component-directory": encode_components(Answer((GRANT,), (DIRECTORY, ENDPOINT, BROKER))),
}
KEYS = tuple(PublicKey(kind, spki(rsa_key(f"key {kind}"))) for kind in CertificateKind)
REQUEST = encode_request(
    RegistrationRequest(CONTACT, ComponentCode("E1"), KEYS[:2], CERTIFICATES[1:2])
)
RESPONSE = encode_response(
    RegistrationAnswer(
        CONTACT, "7", ComponentCode("E1"), RegistrationStatus.APPROVED, "fine", CERTIFICATES[:2]
    )
)


def all_components(*ids: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "component",
        [pytest.param(c, marks=[pytest.mark.req(i, component=c) for i in ids]) for c in DOCUMENTS],
    )


Alter = Callable[[etree._Element], None]


def valid(data: bytes, alter: Alter | None = None, schema: str = "components") -> bool:
    root = etree.fromstring(data)
    if alter is not None:
        alter(root)
    try:
        load_schema(f"directory/{schema}.xsd").read(etree.tostring(root))
    except Refusal:
        return False
    return True


def first(root: etree._Element, name: str) -> etree._Element:
    found = next(root.iter(name))
    assert found is not None
    return found


def remove(name: str) -> Alter:
    def alter(root: etree._Element) -> None:
        element = first(root, name)
        parent = element.getparent()
        assert parent is not None
        parent.remove(element)

    return alter


def swap(name: str) -> Alter:
    """Puts an element behind the one that follows it."""

    def alter(root: etree._Element) -> None:
        element = first(root, name)
        following = element.getnext()
        assert following is not None
        following.addnext(element)

    return alter


def empty(name: str) -> Alter:
    def alter(root: etree._Element) -> None:
        element = first(root, name)
        for child in list(element):
            element.remove(child)

    return alter


def text(name: str, value: str) -> Alter:
    def alter(root: etree._Element) -> None:
        first(root, name).text = value

    return alter


def each(*alters: Alter) -> Alter:
    def alter(root: etree._Element) -> None:
        for one in alters:
            one(root)

    return alter


@all_components("503-7.8.1-a")
def test_shared_types_are_one_file_that_the_others_include(component: str) -> None:
    folder = files("gridpost.wire.schemas").joinpath("directory")
    for name in ("components", "registration-request", "registration-response"):
        source = folder.joinpath(f"{name}.xsd").read_text()
        assert '<xsd:include schemaLocation="types.xsd"/>' in source
        assert f'targetNamespace="{NAMESPACE}"' in source
        load_schema(f"directory/{name}.xsd")
    load_schema("directory/types.xsd")
    assert valid(DOCUMENTS[component])


@all_components("503-7.8.1-b")
def test_only_the_root_is_in_the_namespace(component: str) -> None:
    root = etree.fromstring(DOCUMENTS[component])
    assert etree.QName(root).namespace == NAMESPACE
    assert {etree.QName(e).namespace for e in root.iterdescendants("*")} == {None}

    def qualify(tree: etree._Element) -> None:
        for element in tree.iterdescendants("*"):
            element.tag = f"{{{NAMESPACE}}}{element.tag}"

    assert not valid(DOCUMENTS[component], qualify)
    for schema in files("gridpost.wire.schemas").joinpath("directory").iterdir():
        assert "elementFormDefault=" not in schema.read_text()


@all_components("503-7.8.1-c")
def test_a_contact_is_four_texts_in_their_order(component: str) -> None:
    for name in ("organization", "person", "email", "phone"):
        assert not valid(DOCUMENTS[component], remove(name))
        assert not valid(DOCUMENTS[component], swap(name))


@all_components("503-7.8.1-d")
def test_types_are_words_of_their_lists(component: str) -> None:
    data = DOCUMENTS[component]
    for value in ("BROKER", "COMPONENT_DIRECTORY", "ENDPOINT"):
        assert valid(data, text("type", value))
    for value in ("broker", "ROUTER", ""):
        assert not valid(data, text("type", value))
    for kind in ("AUTHENTICATION", "ENCRYPTION", "SIGNING", "INTEGRATED_CA"):
        assert valid(data, lambda r, k=kind: _kind(r, k))  # type: ignore[misc]
    for kind in ("signing", "TLS", ""):
        assert not valid(data, lambda r, k=kind: _kind(r, k))  # type: ignore[misc]


def _kind(root: etree._Element, kind: str) -> None:
    found = root.find(".//certificates/certificate/type")
    assert found is not None
    found.text = kind


@all_components("503-7.8.1-e")
def test_a_certificate_is_id_type_and_bytes(component: str) -> None:
    def in_certificate(change: Callable[[etree._Element], None]) -> Alter:
        def alter(root: etree._Element) -> None:
            found = root.find(".//certificates/certificate")
            assert found is not None
            change(found)

        return alter

    data = DOCUMENTS[component]
    assert not valid(data, remove("certificateID"))
    assert not valid(data, swap("certificateID"))
    assert not valid(data, in_certificate(lambda c: c.remove(c[1])))
    assert not valid(data, in_certificate(lambda c: c.remove(c[2])))


@all_components("503-7.8.1-f")
def test_the_implementation_is_attributes_of_which_one_is_required(component: str) -> None:
    data = DOCUMENTS[component]

    def only_version(root: etree._Element) -> None:
        element = first(root, "madesImplementation")
        element.attrib.clear()
        element.set("madesVersion", "2")

    def as_child(root: etree._Element) -> None:
        etree.SubElement(first(root, "madesImplementation"), "madesVersion").text = "2"

    assert valid(data, only_version)
    assert not valid(data, as_child)
    assert not valid(data, lambda r: first(r, "madesImplementation").attrib.clear())


@all_components("503-7.8.1-g")
def test_an_entry_has_its_parts_in_order_and_may_lack_what_the_directory_adds(
    component: str,
) -> None:
    data = DOCUMENTS[component]
    base = data if b"creationTimestamp" in data else _with_timestamps(data)
    assert valid(base)
    for name in ("creationTimestamp", "modificationTimestamp"):
        assert valid(base, remove(name))
        assert not valid(base, swap(name))
    assert valid(base, each(remove("creationTimestamp"), remove("modificationTimestamp")))
    for name in ("code", "madesImplementation"):
        assert not valid(base, remove(name))
    assert not valid(base, swap("code"))


def _with_timestamps(data: bytes) -> bytes:
    stamps = (
        b"<creationTimestamp>2026-01-01T00:00:00Z</creationTimestamp>"
        b"<modificationTimestamp>2026-01-01T00:00:00Z</modificationTimestamp>"
    )
    return data.replace(b"</certificates>", b"</certificates>" + stamps)


@all_components("503-7.8.1-h")
def test_urls_are_absent_or_at_least_one(component: str) -> None:
    assert valid(DOCUMENTS[component], remove("urls"))
    assert not valid(DOCUMENTS[component], empty("urls"))
    assert b"<urls" not in encode_component(_with(ENDPOINT, urls=()))


@all_components("503-7.8.1-i")
def test_an_entry_has_at_least_one_certificate(component: str) -> None:
    assert not valid(DOCUMENTS[component], remove("certificates"))
    assert not valid(DOCUMENTS[component], empty("certificates"))


@pytest.mark.req("503-7.8.1-l", component="endpoint")
@pytest.mark.req("503-7.8.1-j", component="endpoint")
@pytest.mark.req("503-7.8.1-k")
def test_message_paths_of_an_endpoint() -> None:
    data = DOCUMENTS["endpoint"]
    assert valid(data, remove("senderComponent"))
    assert valid(data, empty("senderComponent"))
    assert not valid(data, swap("senderComponent"))
    assert not valid(data, remove("validFrom"))
    assert not valid(data, remove("messageType"))
    assert valid(data, empty("paths"))
    assert valid(data, remove("paths"))
    read = decode_pushed(data, ComponentType.ENDPOINT, HOME)
    assert [str(p.route) for p in read.paths] == ["INDIRECT:B1", "INDIRECT:B1"]
    # No list: anybody. An empty one: nobody. Ours for anybody: '*'.
    assert [p.senders for p in read.paths] == [{"X"}, None]
    assert b"<senderComponent><component>*</component></senderComponent>" in data
    tree = etree.fromstring(data)
    empty("senderComponent")(tree)
    nobody = decode_pushed(etree.tostring(tree), ComponentType.ENDPOINT, HOME)
    assert nobody.paths[0].senders == frozenset()
    assert not nobody.paths[0].allows(ComponentCode("X"))
    remove("senderComponent")(tree)
    anybody = decode_pushed(etree.tostring(tree), ComponentType.ENDPOINT, HOME)
    assert anybody.paths[0].allows(ComponentCode("X"))


@pytest.mark.req("503-7.8.1-m", component="broker")
def test_the_restriction_of_a_broker() -> None:
    data = DOCUMENTS["broker"]
    assert not valid(data, remove("restriction"))
    assert valid(data, empty("restriction"))

    def swapped(root: etree._Element) -> None:
        restriction = first(root, "restriction")
        restriction.append(restriction[0])

    assert not valid(data, swapped)
    tree = etree.fromstring(data)
    empty("restriction")(tree)
    read = decode_pushed(etree.tostring(tree), ComponentType.BROKER, HOME)
    assert read.restriction == Restriction()
    assert read.restriction.allows_component("ANYBODY")
    assert read.restriction.allows_message_type("ANYTHING")


@pytest.mark.req("503-7.8.1-n")
def test_the_entry_of_a_component_directory_adds_nothing() -> None:
    data = encode_components(Answer((GRANT,), (DIRECTORY,)))
    for name in ("paths", "restriction"):

        def add(root: etree._Element, name: str = name) -> None:
            found = root.find("components/componentDirectory")
            assert found is not None
            etree.SubElement(found, name)

        assert not valid(data, add)
    types = files("gridpost.wire.schemas").joinpath("directory/types.xsd").read_text()
    assert 'complexType name="ComponentDirectoryInformation"' in types
    assert 'complexType name="ComponentInformation"' in types


@all_components("503-7.8.2-a")
def test_request_and_response_share_a_name_and_no_schema(component: str) -> None:
    for data in (REQUEST, RESPONSE):
        assert etree.QName(etree.fromstring(data)).localname == "registrationRequest"
    assert valid(REQUEST, schema="registration-request")
    assert not valid(REQUEST, schema="registration-response")
    assert valid(RESPONSE, schema="registration-response")
    assert not valid(RESPONSE, schema="registration-request")


@pytest.mark.parametrize(
    "component",
    [
        pytest.param(c, marks=pytest.mark.req("503-7.8.2-b", "503-7.8.2-c", component=c))
        for c in ("endpoint", "broker")
    ],
)
def test_the_request_holds_keys_and_beside_them_certificates(component: str) -> None:
    keys = KEYS if component == "endpoint" else KEYS[:1]
    external = CERTIFICATES[1:2] if component == "endpoint" else ()
    data = encode_request(RegistrationRequest(CONTACT, ComponentCode("X1"), keys, external))
    names = [str(child.tag) for child in etree.fromstring(data)]
    wanted = ["organization", "person", "email", "phone", "code", "publicKeys"]
    assert names == wanted + (["certificates"] if external else [])
    kind = "registration-request"
    assert valid(data, schema=kind)
    assert not valid(data, remove("publicKeys"), kind)
    assert not valid(data, empty("publicKeys"), kind)
    assert not valid(data, swap("phone"), kind)

    def nested(root: etree._Element) -> None:
        certificates = etree.SubElement(first(root, "publicKeys"), "certificates")
        certificates.text = ""

    assert not valid(data, nested, kind)
    assert not valid(REQUEST, empty("certificates"), kind)


@pytest.mark.req("503-7.8.2-d", "503-7.8.2-f", "503-7.8.2-g")
def test_the_response_names_number_code_and_status() -> None:
    kind = "registration-response"
    names = [str(child.tag) for child in etree.fromstring(RESPONSE)]
    assert names == [
        "organization", "person", "email", "phone", "id", "code", "status", "reason", "certificates",
    ]  # fmt: skip
    pending = encode_response(
        RegistrationAnswer(CONTACT, "7", ComponentCode("E1"), RegistrationStatus.PENDING)
    )
    assert valid(pending, schema=kind)
    assert b"<reason" not in pending
    for status in ("PENDING", "APPROVED", "REJECTED"):
        assert valid(RESPONSE, text("status", status), kind)
    for status in ("pending", "DONE", ""):
        assert not valid(RESPONSE, text("status", status), kind)
    for name in ("id", "code", "status"):
        assert not valid(RESPONSE, swap(name), kind)
        assert not valid(RESPONSE, remove(name), kind)
    assert valid(REQUEST, remove("certificates"), "registration-request")
    assert not valid(REQUEST, empty("certificates"), "registration-request")


@all_components("503-7.8.3-a")
def test_each_body_has_one_of_four_roots(component: str) -> None:
    root = etree.fromstring(DOCUMENTS[component])
    expected = {"component-directory": "components"}.get(component, component)
    assert root.tag == f"{{{NAMESPACE}}}{expected}"
    query = etree.fromstring(encode_query(Query()))
    assert query.tag == f"{{{NAMESPACE}}}componentsQuery"
    assert not valid(b"<endpoint/>")


@pytest.mark.req("503-7.8.3-b", "503-7.8.3-d")
def test_an_answer_is_entries_if_any_and_always_metadata() -> None:
    nothing_new = encode_components(Answer((GRANT,), ()))
    assert valid(nothing_new)
    assert len(etree.fromstring(nothing_new)) == 1
    assert not valid(nothing_new, remove("metadata"))
    assert not valid(nothing_new, empty("metadata"))
    assert not valid(nothing_new, swap("ttl"))
    triplet = etree.fromstring(nothing_new)[0][0]
    assert [(e.tag, e.text) for e in triplet] == [
        ("componentDirectory", HOME),
        ("ttl", "60000"),
        ("contentID", "content"),
    ]


@all_components("503-7.8.3-c")
def test_entries_come_in_any_order(component: str) -> None:
    mixed = (ENDPOINT, DIRECTORY, BROKER, ENDPOINT, DIRECTORY)
    received = decode_components(encode_components(Answer((GRANT,), mixed)))
    assert received.answer.components == mixed
    without = etree.fromstring(encode_components(Answer((GRANT,), mixed)))
    empty("components")(without)
    assert decode_components(etree.tostring(without)).answer.components == ()


@all_components("503-7.8.3-f")
def test_a_query_is_couples_and_then_a_flag(component: str) -> None:
    query = encode_query(
        Query((Couple(HOME, "1"), Couple(ComponentCode("CD-2"), "2")), only_home=True)
    )
    assert valid(query)
    assert valid(encode_query(Query()))

    def flag_first(root: etree._Element) -> None:
        root.insert(0, root[-1])

    assert not valid(query, flag_first)
    assert not valid(query, remove("contentID"))


@pytest.mark.req("503-7.5-d")
def test_an_error_is_four_texts() -> None:
    data = encode_error(PeerError("CODE", "1", "message", ""))
    assert etree.fromstring(data).tag == f"{{{NAMESPACE}}}error"
    assert valid(data, schema="error")
    for name in ("code", "id", "message", "details"):
        assert not valid(data, remove(name), "error")
    assert not valid(data, swap("code"), "error")
