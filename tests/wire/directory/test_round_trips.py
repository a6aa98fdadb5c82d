"""Documents of the component-directory API: what is written is read back, by us and by xmllint."""

import subprocess
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gridpost.wire.schemas
from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode, MessageTypePattern
from gridpost.core.instant import Instant
from gridpost.core.message_path import MessagePath, Restriction, Route
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import PublicKey, RegistrationRequest, RegistrationStatus
from gridpost.core.synchronisation import Answer, Couple, Grant
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.wire.directory import (
    EncodedComponents,
    InstallationBundle,
    PeerError,
    Query,
    RegistrationAnswer,
    decode_bundle,
    decode_components,
    decode_entry,
    decode_error,
    decode_pushed,
    decode_query,
    decode_request,
    decode_response,
    encode_bundle,
    encode_component,
    encode_components,
    encode_error,
    encode_query,
    encode_request,
    encode_response,
)
from gridpost.wire.x509 import KeyBundle, write_pkcs12
from support.builders import CONTACT, HOME
from support.pki import rsa_key, shared_endpoint, shared_pki, spki

printable = st.characters(codec="utf-8", exclude_characters="\ufffe\uffff", min_codepoint=32)
texts = st.text(printable | st.sampled_from("\t\n\r"), max_size=12)
codes = st.from_regex(r"[A-Za-z0-9@-]{1,12}", fullmatch=True).map(ComponentCode)
patterns = st.from_regex(r"[A-Za-z0-9-]{1,8}\*?|\*", fullmatch=True).map(MessageTypePattern)
instants = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1)).map(
    lambda at: Instant.of(at.replace(tzinfo=UTC))
)
contacts = st.builds(Contact, texts, texts, texts, texts)
implementations = st.builds(Implementation, texts, texts, texts, texts)
senders = st.none() | st.frozensets(codes, max_size=3)
paths = st.builds(
    MessagePath,
    patterns,
    st.builds(Route, st.none() | codes),
    instants,
    st.none() | instants,
    senders,
)
restrictions = st.builds(
    Restriction, st.frozensets(codes, max_size=3), st.lists(patterns, max_size=3).map(tuple)
)


def certificate_pool() -> list[Certificate]:
    return [*shared_endpoint("E1").certificates, *shared_endpoint("E2").certificates]


certificates = st.deferred(lambda: st.sampled_from(certificate_pool()))
some_certificates = st.lists(certificates, min_size=1, max_size=3).map(tuple)
urls = st.lists(texts, max_size=2).map(tuple)


def components(kind: ComponentType) -> st.SearchStrategy[Component]:
    return st.builds(
        Component,
        code=codes,
        type=st.just(kind),
        contact=contacts,
        component_directory=codes,
        implementation=implementations,
        urls=urls,
        certificates=some_certificates,
        created=st.none() | instants,
        modified=st.none() | instants,
        paths=st.lists(paths, max_size=3).map(tuple)
        if kind is ComponentType.ENDPOINT
        else st.just(()),
        restriction=restrictions if kind is ComponentType.BROKER else st.none(),
    )


any_component = st.one_of([components(kind) for kind in ComponentType])
grants = st.lists(
    st.builds(
        Grant, codes, texts, st.integers(1, 10**10).map(lambda ms: timedelta(milliseconds=ms))
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda grant: grant.component_directory,
).map(tuple)


def lexical(component: Component) -> list[str]:
    """Texts of instants take no part in comparisons, but must come back as well."""
    found = [component.created, component.modified]
    found += [i for p in component.paths for i in (p.valid_from, p.valid_until)]
    return [str(i) for i in found]


@given(st.one_of(components(ComponentType.ENDPOINT), components(ComponentType.BROKER)))
def test_an_entry_comes_back_as_it_was(component: Component) -> None:
    document = encode_component(component)
    read, warnings = decode_entry(document, component.type)
    assert (read, warnings) == (component, ())
    assert lexical(read) == lexical(component)


@given(st.one_of(components(ComponentType.ENDPOINT), components(ComponentType.BROKER)))
def test_a_push_carries_what_the_component_owns_and_nothing_else(component: Component) -> None:
    pushed = decode_pushed(encode_component(component), component.type, HOME)
    assert pushed.certificates == ()
    assert (pushed.created, pushed.modified) == (None, None)
    assert pushed.component_directory == HOME
    owned = ("code", "type", "contact", "implementation", "urls", "paths", "restriction")
    for name in owned:
        assert getattr(pushed, name) == getattr(component, name)


@given(grants, st.lists(any_component, max_size=3).map(tuple))
def test_an_answer_comes_back_as_it_was(
    granted: tuple[Grant, ...], found: tuple[Component, ...]
) -> None:
    answer = Answer(granted, found)
    received = decode_components(encode_components(answer))
    assert received.answer == answer
    assert received.warnings == ()


@given(st.lists(st.builds(Couple, codes, texts), max_size=3).map(tuple), st.booleans())
def test_a_query_comes_back_as_it_was(couples: tuple[Couple, ...], only_home: bool) -> None:
    query = Query(couples, only_home)
    assert decode_query(encode_query(query)) == query


@given(contacts, codes, st.lists(certificates, max_size=2).map(tuple))
def test_a_registration_request_comes_back_as_it_was(
    contact: Contact, code: ComponentCode, external: tuple[Certificate, ...]
) -> None:
    keys = (PublicKey(CertificateKind.AUTHENTICATION, spki(rsa_key("a key"))),)
    request = RegistrationRequest(contact, code, keys, external)
    assert decode_request(encode_request(request)) == request


@given(
    st.builds(
        RegistrationAnswer,
        contacts,
        texts,
        codes,
        st.sampled_from(RegistrationStatus),
        texts,
        st.lists(certificates, max_size=2).map(tuple),
    )
)
def test_a_registration_answer_comes_back_as_it_was(answer: RegistrationAnswer) -> None:
    assert decode_response(encode_response(answer)) == answer


@given(st.builds(PeerError, texts, texts, texts, texts))
def test_an_error_comes_back_as_it_was(error: PeerError) -> None:
    assert decode_error(encode_error(error)) == error


def test_a_refusal_becomes_an_error_body_with_its_id() -> None:
    refusal = Refusal(Rule.ACCESS_DENIED, "no", "why")
    error = decode_error(encode_error(refusal))
    assert error == PeerError("AUTHENTICATION_ERROR", refusal.id, "no", "why")


def test_an_entry_without_certificates_is_left_out_of_an_answer() -> None:
    whole = Component(
        ComponentCode("E1"),
        ComponentType.ENDPOINT,
        CONTACT,
        HOME,
        Implementation("2"),
        certificates=shared_endpoint("E1").certificates,
    )
    bare = Component(ComponentCode("E2"), whole.type, CONTACT, HOME, Implementation("2"))
    grant = Grant(HOME, "1", timedelta(hours=1))
    received = decode_components(encode_components(Answer((grant,), (whole, bare))))
    assert received.answer.components == (whole,)


def test_remembered_entries_are_the_same_bytes() -> None:
    component = Component(
        ComponentCode("E1"),
        ComponentType.ENDPOINT,
        CONTACT,
        HOME,
        Implementation("2"),
        certificates=shared_endpoint("E1").certificates,
    )
    answer = Answer((Grant(HOME, "1", timedelta(hours=1)),), (component,) * 3)
    known = EncodedComponents(capacity=1)
    first = encode_components(answer, known)
    assert encode_components(answer, known) == first == encode_components(answer)


def test_an_installation_bundle_is_one_file_and_comes_back_as_it_was() -> None:
    pki = shared_pki()
    key = rsa_key("E1 installation")
    opened = KeyBundle(to_pkcs8(key), pki.installation("E1"), (pki.integrated_ca,), "E1")
    bundle = InstallationBundle(
        ComponentCode("E1"),
        HOME,
        ("https://cd.example", "https://cd2.example/\u00fc"),
        shared_endpoint("E1").authentication.der,
        (pki.root,),
        write_pkcs12(opened, "secret"),
    )
    data = encode_bundle(bundle)
    assert decode_bundle(data) == bundle
    assert encode_bundle(bundle) == data
    assert bundle.open("secret") == opened
    home = bundle.home(opened.issuers)
    assert [c.kind for c in home.certificates] == [
        CertificateKind.AUTHENTICATION,
        CertificateKind.INTEGRATED_CA,
    ]
    for broken in (b"", b"PK", data[:-30], data.replace(b"bundle.toml", b"bundle.xxxx")):
        with pytest.raises(Refusal, match="bundle cannot be used"):
            decode_bundle(broken)


@pytest.mark.parametrize("schema", ["components", "registration-request", "registration-response"])
def test_xmllint_accepts_what_we_write(tmp_path: Path, schema: str) -> None:
    component = Component(
        ComponentCode("E1"),
        ComponentType.ENDPOINT,
        Contact("A & B", "<P>", "e@x", "+1"),
        HOME,
        Implementation("2", "Gridpost"),
        certificates=shared_endpoint("E1").certificates,
        paths=(
            MessagePath(MessageTypePattern("A*"), Route(), Instant.parse("2026-01-01T00:00:00Z")),
        ),
    )
    key = PublicKey(CertificateKind.AUTHENTICATION, spki(rsa_key("a key")))
    documents = {
        "components": [
            encode_component(component),
            encode_components(Answer((Grant(HOME, "1", timedelta(hours=1)),), (component,))),
            encode_components(Answer((Grant(HOME, "1", timedelta(hours=1)),), ())),
            encode_query(Query()),
            encode_query(Query((Couple(HOME, "1"),), only_home=True)),
        ],
        "registration-request": [
            encode_request(RegistrationRequest(CONTACT, ComponentCode("E1"), (key,)))
        ],
        "registration-response": [
            encode_response(
                RegistrationAnswer(
                    CONTACT,
                    "1",
                    ComponentCode("E1"),
                    RegistrationStatus.APPROVED,
                    certificates=component.certificates,
                )
            )
        ],
    }
    xsd = files(gridpost.wire.schemas).joinpath(f"directory/{schema}.xsd")
    for number, document in enumerate(documents[schema]):
        file = tmp_path / f"{number}.xml"
        file.write_bytes(document)
        done = subprocess.run(
            ["xmllint", "--noout", "--nonet", "--schema", str(xsd), str(file)],
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
