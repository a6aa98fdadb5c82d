"""61968-100 Annexes C and D, cl. 8.3 and 10: web service descriptions, and new versions of schemas."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import zeep
from lxml import etree

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope import schema_change
from gridpost.wire.envelope.wsdl import (
    BASE,
    EVENTS,
    PATTERNS,
    REQUESTS,
    generic_wsdl,
    message_xsd,
    typed_files,
    typed_wsdl,
)
from support.envelopes import MESSAGE

X = "EndDeviceControls"
NS = {
    "w": "http://schemas.xmlsoap.org/wsdl/",
    "s": "http://schemas.xmlsoap.org/wsdl/soap/",
    "x": "http://www.w3.org/2001/XMLSchema",
}
INTEROP = Path(__file__).parents[1] / "interop"


def profile(name: str, inner: str = "", version: str = "1.0", note: str = "") -> bytes:
    return f"""<xs:schema xmlns:xs="{NS["x"]}" xmlns:t="{BASE}/{name}#" targetNamespace="{BASE}/{name}#"
      elementFormDefault="qualified" version="{version}">
  <xs:annotation><xs:documentation>1.0: first</xs:documentation>{note}</xs:annotation>
  <xs:element name="{name}" type="t:{name}"/>
  <xs:complexType name="{name}"><xs:sequence>
    <xs:element name="Item" type="t:Item" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
  </xs:complexType>
  <xs:complexType name="Item"><xs:sequence>
    <xs:element name="mRID" type="xs:string" minOccurs="0"/>{inner}</xs:sequence></xs:complexType>
</xs:schema>""".encode()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wsdl")
    found = typed_files(X, profile(X), profile(f"Get{X}"))
    found["Generic.wsdl"] = generic_wsdl().encode()
    for name, data in found.items():
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(data)
    return out


def read(folder: Path, name: str) -> etree._Element:
    return etree.parse(folder / name).getroot()


def schema(folder: Path, name: str) -> etree.XMLSchema:
    return etree.XMLSchema(etree.parse(folder / "xsd" / name))


@pytest.mark.req("100-C.1-a")
@pytest.mark.req("100-C.2-a")
@pytest.mark.req("100-C.2-b")
@pytest.mark.req("100-C.2-c")
@pytest.mark.req("100-C.2-e")
@pytest.mark.req("100-C.4-l")
@pytest.mark.req("100-8.3.2-a")
@pytest.mark.req("100-8.3.4.2-d")
@pytest.mark.req("100-6.13-a")
def test_every_pattern_has_its_file_and_imports_its_schemas(folder: Path) -> None:
    assert {p.name for p in folder.glob("*.wsdl")} == {
        *(f"{pattern}{X}.wsdl" for pattern in PATTERNS),
        "Generic.wsdl",
    }
    assert set(PATTERNS) == {
        "Send", "Receive", "Request", "Execute", "Reply", "Show", "Retrieve", "Get",
    }  # fmt: skip
    assert {p.name for p in (folder / "xsd").iterdir()} == {
        "Message.xsd", f"{X}.xsd", f"{X}Message.xsd", f"Get{X}.xsd", f"Get{X}Message.xsd",
    }  # fmt: skip
    for file in folder.rglob("*.*"):
        root = etree.parse(file).getroot()
        assert b"{" not in etree.tostring(root).replace(b"{BASE}", b"{")
        for location in root.iter("{*}import", "{*}include"):
            assert (file.parent / location.get("schemaLocation", "")).exists()
    for file in folder.glob(f"*{X}.wsdl"):
        (types,) = etree.parse(file).getroot().iterfind("w:types/x:schema", NS)
        assert [etree.QName(child).localname for child in types] == ["import"]
    with pytest.raises(Refusal):
        typed_wsdl("Fetch", X)
    requests, executes = (read(folder, f"{p}{X}.wsdl") for p in ("Request", "Execute"))
    assert operations(requests) == operations(executes)
    assert requests.get("targetNamespace") != executes.get("targetNamespace")


def operations(root: etree._Element) -> list[str]:
    return [str(op.get("name")) for op in root.iterfind("w:portType/w:operation", NS)]


@pytest.mark.req("100-3.3.7-a")
@pytest.mark.req("100-3.3.8-a")
@pytest.mark.req("100-6.1-a")
@pytest.mark.req("100-6.5-a")
@pytest.mark.req("100-6.6-b")
@pytest.mark.req("100-8.3.3-a")
@pytest.mark.req("100-8.3.3-b")
@pytest.mark.req("100-8.3.4.2-b")
@pytest.mark.req("100-8.3.4.2-c")
@pytest.mark.req("100-8.3.4.2-e")
@pytest.mark.req("100-8.3.4.2-f")
@pytest.mark.req("100-C.4-a")
@pytest.mark.req("100-C.4-b")
@pytest.mark.req("100-C.4-c")
@pytest.mark.req("100-C.4-e")
@pytest.mark.req("100-C.4-f")
@pytest.mark.req("100-C.4-g")
@pytest.mark.req("100-C.4-h")
@pytest.mark.req("100-C.4-i")
@pytest.mark.req("100-C.4-k")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_names_of_a_typed_service_follow_the_templates(folder: Path, pattern: str) -> None:
    root = read(folder, f"{pattern}{X}.wsdl")
    name = f"{pattern}{X}"
    get, show = pattern in ("Get", "Retrieve"), pattern == "Show"
    port = f"{name}_Port" if get else f"{X}_Port"
    assert root.tag == f"{{{NS['w']}}}definitions"
    assert (root.get("name"), root.get("targetNamespace")) == (name, f"{BASE}/{name}")
    assert "schema" not in [etree.QName(child).localname for child in root]
    verbs = [f"{verb}{X}" for verb in PATTERNS[pattern]]
    assert operations(root) == verbs
    parts = {m.get("name"): m.findall("w:part", NS) for m in root.iterfind("w:message", NS)}
    for message, found in parts.items():
        (part,) = found
        assert part.get("name") == message
        assert part.get("type") is None
    kind = "Event" if pattern in ("Send", "Receive", "Reply") else "Request"
    for operation in root.iterfind("w:portType/w:operation", NS):
        op = operation.get("name")
        (given,) = operation.findall("w:input", NS)
        assert (given.get("name"), given.get("message")) == (
            f"{op}{kind}",
            f"tns:{op}{kind}Message",
        )
        assert str(parts[f"{op}{kind}Message"][0].get("element")).partition(":")[2] == op
        outputs = [(o.get("name"), o.get("message")) for o in operation.findall("w:output", NS)]
        faults = [(o.get("name"), o.get("message")) for o in operation.findall("w:fault", NS)]
        assert outputs == ([] if show else [(f"{op}Response", "tns:ResponseMessage")])
        assert faults == ([] if show else [(f"{op}Fault", "tns:FaultMessage")])
    (binding,) = root.findall("w:binding", NS)
    (style,) = binding.findall("s:binding", NS)
    assert style.attrib == {
        "style": "document", "transport": "http://schemas.xmlsoap.org/soap/http",
    }  # fmt: skip
    for operation in binding.iterfind("w:operation", NS):
        (soap,) = operation.findall("s:operation", NS)
        owner = f"Get{X}" if get else X
        assert soap.get("soapAction") == f"{BASE}/{owner}/{operation.get('name')}"
        assert soap.get("style") == "document"
        uses = {e.get("use") for e in operation.iter(f"{{{NS['s']}}}body", f"{{{NS['s']}}}fault")}
        assert uses == {"literal"}
    (service,) = root.findall("w:service", NS)
    (end,) = service.findall("w:port", NS)
    assert (service.get("name"), end.get("name")) == (name, port)
    assert end[0].get("location") == f"{BASE}/{name}"


HEADER = "<t:Header><m:Verb>create</m:Verb><m:Noun>EndDeviceControls</m:Noun></t:Header>"


def typed(root: str, body: str, envelope: str = f"{X}Message") -> etree._Element:
    return etree.fromstring(
        f'<t:{root} xmlns:t="{BASE}/{envelope}" xmlns:m="{MESSAGE}" xmlns:o="{BASE}/{X}#"'
        f' xmlns:g="{BASE}/Get{X}#">{body}</t:{root}>'
    )


@pytest.mark.req("100-C.3-a")
@pytest.mark.req("100-C.3-b")
@pytest.mark.req("100-C.3-c")
@pytest.mark.req("100-C.3-d")
@pytest.mark.req("100-C.3-e")
@pytest.mark.req("100-C.3-f")
@pytest.mark.req("100-C.3-g")
@pytest.mark.req("100-C.3-h")
@pytest.mark.req("100-8.3.3-c")
def test_typed_messages_wrap_the_noun(folder: Path) -> None:
    checked = schema(folder, f"{X}Message.xsd")
    payload = f"<t:Payload><o:{X}/><t:Format>XML</t:Format></t:Payload>"
    for verb in (*REQUESTS, *EVENTS):
        assert checked.validate(typed(f"{verb}{X}", HEADER + payload))
    assert checked.validate(typed(f"Delete{X}", HEADER + "<t:Payload><t:ID>a</t:ID></t:Payload>"))
    reply = "<t:Reply><m:Result>OK</m:Result></t:Reply>"
    assert checked.validate(typed(f"{X}ResponseMessage", HEADER + reply))
    assert checked.validate(typed(f"{X}FaultMessage", reply))
    assert not checked.validate(typed(f"{X}ResponseMessage", HEADER))
    assert not checked.validate(typed(f"Create{X}", HEADER.replace("t:Header", "m:Header")))
    assert not checked.validate(typed(f"Create{X}", HEADER.replace("m:Verb", "t:Verb")))
    assert not checked.validate(typed(f"Create{X}", HEADER + "<t:Payload><o:Else/></t:Payload>"))
    extra = typed(f"Create{X}", HEADER)
    extra.set("a", "b")
    assert not checked.validate(extra)
    root = read(folder, f"xsd/{X}Message.xsd")
    assert (root.get("version"), root.get("elementFormDefault")) == ("1.0.0", "qualified")
    other = profile(X).replace(f"{BASE}/{X}#".encode(), b"urn:else")
    with pytest.raises(Refusal) as refused:
        typed_files(X, other)
    assert refused.value.rule is Rule.SCHEMA_CHANGE


@pytest.mark.req("100-C.3-i")
@pytest.mark.req("100-C.3-j")
@pytest.mark.req("100-C.3-k")
@pytest.mark.req("100-C.3-l")
@pytest.mark.req("100-C.3-m")
def test_get_messages_carry_the_profile_when_there_is_one(folder: Path, tmp_path: Path) -> None:
    checked = schema(folder, f"Get{X}Message.xsd")
    head = HEADER.replace("create", "get")
    name = f"Get{X}Message"

    def valid(request: str, found: etree.XMLSchema = checked) -> bool:
        return bool(found.validate(typed(f"Get{X}", head + request, name)))

    assert valid(f"<t:Request><t:ID>a</t:ID><g:Get{X}/></t:Request>")
    assert not valid("<t:Request><t:ID>a</t:ID></t:Request>")
    assert not valid(f'<t:Request><t:ID kind="uuid">a</t:ID><g:Get{X}/></t:Request>')
    assert not valid("")
    reply = "<t:Reply><m:Result>OK</m:Result></t:Reply><t:Payload><t:Compressed>x</t:Compressed></t:Payload>"
    assert checked.validate(typed(f"{X}ResponseMessage", head + reply, name))
    for file, data in typed_files(X, profile(X)).items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(data)
    plain = schema(tmp_path, f"Get{X}Message.xsd")
    assert valid("<t:Request><t:ID>a</t:ID></t:Request>", plain)
    assert b"obj2" not in (tmp_path / "xsd" / f"Get{X}Message.xsd").read_bytes()


@pytest.mark.req("100-D-b")
@pytest.mark.req("100-D-f")
@pytest.mark.req("100-D-g")
@pytest.mark.req("100-D-h")
def test_the_generic_description_has_the_names_of_annex_d(folder: Path) -> None:
    root = etree.fromstring(generic_wsdl("https://bus.example/61968").encode())
    assert root.get("targetNamespace") == f"{BASE}/abstract"
    assert [e.get("name") for e in root.iterfind("w:portType", NS)] == ["Operations"]
    assert operations(root) == ["PublishEvent", "Request", "Response"]
    actions = {e.get("soapAction") for e in root.iter(f"{{{NS['s']}}}operation")}
    assert actions == {f"http://iec.ch/61968/{n}" for n in ("PublishEvent", "Request", "Response")}
    parts = {
        m.get("name"): [(p.get("name"), p.get("element")) for p in m]
        for m in root.iterfind("w:message", NS)
    }
    for name in ("EventMessage", "RequestMessage", "ResponseMessage", "FaultMessage"):
        assert parts[name] == [("Message", f"ns2:{name}")]
    (types,) = root.iterfind("w:types/x:schema", NS)
    assert {e.get("name") for e in types.iterfind("x:element", NS)} == {
        "PublishEvent", "Request", "Response",
    }  # fmt: skip
    (address,) = root.iter(f"{{{NS['s']}}}address")
    assert address.get("location") == "https://bus.example/61968"
    assert (folder / "xsd" / "Message.xsd").read_bytes() == message_xsd()


def test_zeep_reads_every_description(folder: Path) -> None:
    for file in folder.glob("*.wsdl"):
        client = zeep.Client(str(file))
        root = etree.parse(file).getroot()
        assert sorted(client.service._operations) == sorted(operations(root))


def test_wsimport_and_node_soap_read_every_description(folder: Path, tmp_path: Path) -> None:
    wsimport = shutil.which("wsimport")
    for name in ("Generic", f"Request{X}", f"Get{X}"):
        file = folder / f"{name}.wsdl"
        if wsimport is not None:
            done = subprocess.run(
                [wsimport, "-Xnocompile", "-d", str(tmp_path), str(file)],
                capture_output=True, text=True, timeout=120, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout + done.stderr
        script = (
            "require('soap').createClientAsync(process.argv[1]).then("
            "c => console.log(JSON.stringify(c.describe())), e => { console.error(e); process.exit(1) })"
        )
        done = subprocess.run(
            ["node", "-e", script, str(file)],
            capture_output=True, text=True, timeout=60, check=False, cwd=INTEROP,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        for operation in operations(read(folder, file.name)):
            assert f'"{operation}"' in done.stdout


OPTIONAL = '<xs:element name="reason" type="xs:string" minOccurs="0"/>'
NOTE = "<xs:documentation>1.1: reason</xs:documentation>"


@pytest.mark.req("100-10-a", component="wsdl")
@pytest.mark.req("100-10-b", component="wsdl")
@pytest.mark.req("100-10-c", component="wsdl")
def test_new_versions_keep_the_namespace_while_old_messages_stay_valid() -> None:
    old = profile(X)
    minor = schema_change.compare(old, profile(X, OPTIONAL, "1.1", NOTE))
    assert (minor.kind, minor.errors) == ("minor", ())
    assert schema_change.compare(old, old).kind == "none"
    for new, kind, words in (
        (profile(X, OPTIONAL), "minor", ("version must be 1.1", "annotation")),
        (profile(X, OPTIONAL.replace(' minOccurs="0"', ""), "1.1", NOTE), "major", ("namespace",)),
        (profile(X).replace(b'name="mRID" type="xs:string"', b'name="mRID" type="xs:int"'),
         "major", ("namespace", "major number")),
        (profile(X, OPTIONAL, "2.0", NOTE).replace(b"/2011/", b"/2012/"), "minor", ("stay",)),
    ):  # fmt: skip
        verdict = schema_change.compare(old, new)
        assert verdict.kind == kind
        assert verdict.errors
        for word in words:
            assert any(word in error for error in verdict.errors)
    gone = profile(X).replace(b'name="mRID"', b'name="id"').replace(b"/2011/", b"/2012/")
    major = schema_change.compare(old, gone.replace(b'version="1.0"', b'version="2.0"'))
    assert (major.kind, major.errors) == ("major", ())
