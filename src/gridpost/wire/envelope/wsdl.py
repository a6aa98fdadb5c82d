"""Web service descriptions of the envelope: the generic one, and typed ones for a noun (Annexes C, D).

Typed: `xsd/{X}Message.xsd` wraps the envelope's types around the noun's own schema, and each service
pattern has a WSDL. The body's root element is always named like its operation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

from lxml import etree

from gridpost.core.envelope import NAMESPACE
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.xml_text import attribute

BASE = "http://iec.ch/TC57/2011"
GENERIC_ADDRESS = "http://iec.ch/61968/"
REQUESTS = ("Create", "Change", "Cancel", "Close", "Delete", "Execute")
EVENTS = ("Created", "Changed", "Canceled", "Closed", "Deleted", "Executed")
PATTERNS: Mapping[str, tuple[str, ...]] = {
    "Send": EVENTS,
    "Receive": EVENTS,
    "Reply": EVENTS,
    "Request": REQUESTS,
    "Execute": REQUESTS,
    "Get": ("Get",),
    "Retrieve": ("Get",),
    "Show": ("Reply",),
}
_XSD = "{http://www.w3.org/2001/XMLSchema}"
_NAME = re.compile(r"[A-Z][A-Za-z0-9_]*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.xsd")


def message_xsd() -> bytes:
    return files("gridpost.wire.schemas").joinpath("envelope/Message.xsd").read_bytes()


def shipped_xsd(name: str) -> bytes | None:
    """The schema of a noun of the reference handlers, or of its Get profile; None: none is ours."""
    if not _NAME.fullmatch(name):
        return None
    file = files("gridpost.wire.schemas").joinpath(f"envelope/nouns/{name}.xsd")
    return file.read_bytes() if file.is_file() else None


def generic_wsdl(address: str = GENERIC_ADDRESS) -> str:
    """Annex D, with the fault that it forgets."""
    text = files("gridpost.wire.schemas").joinpath("envelope/Generic.wsdl").read_text("utf-8")
    return text.replace(attribute("location", GENERIC_ADDRESS), attribute("location", address))


def noun_of(schema: bytes, name: str) -> str:
    """The noun of a profile: its file's name, its element's name and its namespace agree."""
    root = _schema(schema, name)
    elements = {e.get("name") for e in root.iterchildren(f"{_XSD}element")}
    types = {t.get("name") for t in root.iterchildren(f"{_XSD}complexType")}
    if not _NAME.fullmatch(name) or name not in elements:
        raise Refusal(
            Rule.SCHEMA_CHANGE,
            f"the schema defines no element '{clip(name)}'; its file is named like its noun",
        )
    wanted = f"{BASE}/{name}#"
    if root.get("targetNamespace") != wanted:
        raise Refusal(
            Rule.SCHEMA_CHANGE,
            f"the target namespace is '{clip(root.get('targetNamespace') or '')}', not {wanted}",
        )
    if (
        not name.endswith("s")
        and not name.endswith("Config")
        and f"{name}s" not in elements | types
    ):
        # Annex C: a plural, so that the classes of the profile keep their names.
        raise Refusal(Rule.SCHEMA_CHANGE, f"'{name}' is not a plural")
    return name


def beside(schema: bytes) -> set[str]:
    """Files in the same folder that a schema includes or imports."""
    root = _schema(schema, "the noun")
    parts = root.iterchildren(f"{_XSD}include", f"{_XSD}import", f"{_XSD}redefine")
    found = {part.get("schemaLocation") or "" for part in parts}
    return {name for name in found if _FILE.fullmatch(name)}


def typed_files(
    noun: str,
    schema: bytes,
    get_schema: bytes | None = None,
    more: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Every file of Annex C for one noun, by its path; `more`: what its schemas include."""
    noun_of(schema, noun)
    found: dict[str, bytes] = {
        "xsd/Message.xsd": message_xsd(),
        f"xsd/{noun}.xsd": schema,
        f"xsd/{noun}Message.xsd": _typed_schema(noun).encode(),
        f"xsd/Get{noun}Message.xsd": _get_schema(noun, get_schema is not None).encode(),
    }
    if get_schema is not None:
        root = _schema(get_schema, f"Get{noun}")
        if root.get("targetNamespace") != f"{BASE}/Get{noun}#":
            raise Refusal(Rule.SCHEMA_CHANGE, f"Get{noun}.xsd is not in {BASE}/Get{noun}#")
        found[f"xsd/Get{noun}.xsd"] = get_schema
    for name, data in (more or {}).items():
        if found.setdefault(f"xsd/{name}", data) != data:
            raise Refusal(
                Rule.SCHEMA_CHANGE, f"{clip(name)} is the name of a file that is written here"
            )
    for pattern in PATTERNS:
        found[f"{pattern}{noun}.wsdl"] = typed_wsdl(pattern, noun).encode()
    return found


def _schema(data: bytes, name: str) -> etree._Element:
    try:
        root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as error:
        raise Refusal(Rule.MALFORMED_XML, f"{name}.xsd is not well-formed: {error.msg}") from None
    if root.tag != f"{_XSD}schema":
        raise Refusal(Rule.SCHEMA_CHANGE, f"{name}.xsd is not an XML schema")
    return root


def _typed_schema(x: str) -> str:
    """Annex C.3, template 1; the object is optional and Payload.ID is there, as payloads need it."""
    elements = [
        f'  <xs:element name="{op}{x}" type="tns:{x}RequestMessageType"/>' for op in REQUESTS
    ]
    elements += [f'  <xs:element name="{op}{x}" type="tns:{x}EventMessageType"/>' for op in EVENTS]
    return (
        _schema_start(f"{x}Message", f' xmlns:obj="{BASE}/{x}#"')
        + f'  <xs:import namespace="{NAMESPACE}" schemaLocation="Message.xsd"/>\n'
        + f'  <xs:import namespace="{BASE}/{x}#" schemaLocation="{x}.xsd"/>\n'
        + _typed_payload(x)
        + f"""  <xs:complexType name="{x}RequestMessageType">
    <xs:sequence>
      <xs:element name="Header" type="msg:HeaderType"/>
      <xs:element name="Request" type="msg:RequestType" minOccurs="0"/>
      <xs:element name="Payload" type="tns:{x}PayloadType" minOccurs="0"/>
    </xs:sequence>
  </xs:complexType>
"""
        + _typed_answers(x)
        + f"""  <xs:complexType name="{x}EventMessageType">
    <xs:sequence>
      <xs:element name="Header" type="msg:HeaderType"/>
      <xs:element name="Payload" type="tns:{x}PayloadType" minOccurs="0"/>
    </xs:sequence>
  </xs:complexType>
"""
        + "\n".join(elements)
        + f'\n  <xs:element name="Reply{x}" type="tns:{x}ResponseMessageType"/>\n</xs:schema>\n'
    )


def _get_schema(x: str, profile: bool) -> str:
    """Annex C.3, template 2."""
    obj2 = f' xmlns:obj2="{BASE}/Get{x}#"' if profile else ""
    imported = (
        f'  <xs:import namespace="{BASE}/Get{x}#" schemaLocation="Get{x}.xsd"/>\n'
        if profile
        else ""
    )
    wanted = f'\n      <xs:element ref="obj2:Get{x}"/>' if profile else ""
    return (
        _schema_start(f"Get{x}Message", f' xmlns:obj="{BASE}/{x}#"{obj2}')
        + f'  <xs:import namespace="{NAMESPACE}" schemaLocation="Message.xsd"/>\n'
        + f'  <xs:import namespace="{BASE}/{x}#" schemaLocation="{x}.xsd"/>\n'
        + imported
        + f"""  <xs:complexType name="Get{x}RequestType">
    <xs:sequence>
      <xs:element name="StartTime" type="xs:dateTime" minOccurs="0"/>
      <xs:element name="EndTime" type="xs:dateTime" minOccurs="0"/>
      <xs:element name="Option" type="msg:OptionType" minOccurs="0" maxOccurs="unbounded"/>
      <xs:element name="ID" type="xs:string" minOccurs="0" maxOccurs="unbounded"/>{wanted}
      <xs:any namespace="##other" processContents="lax" minOccurs="0" maxOccurs="unbounded"/>
    </xs:sequence>
  </xs:complexType>
"""
        + _typed_payload(x)
        + f"""  <xs:complexType name="Get{x}RequestMessageType">
    <xs:sequence>
      <xs:element name="Header" type="msg:HeaderType"/>
      <xs:element name="Request" type="tns:Get{x}RequestType"/>
      <xs:element name="Payload" type="tns:{x}PayloadType" minOccurs="0"/>
    </xs:sequence>
  </xs:complexType>
"""
        + _typed_answers(x)
        + f'  <xs:element name="Get{x}" type="tns:Get{x}RequestMessageType"/>\n</xs:schema>\n'
    )


def _schema_start(name: str, more: str) -> str:
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:msg="{NAMESPACE}" \
xmlns:tns="{BASE}/{name}"{more} targetNamespace="{BASE}/{name}" elementFormDefault="qualified" \
attributeFormDefault="unqualified" version="1.0.0">
"""


def _typed_payload(x: str) -> str:
    return f"""  <xs:complexType name="{x}PayloadType">
    <xs:sequence>
      <xs:element ref="obj:{x}" minOccurs="0"/>
      <xs:element name="OperationSet" type="msg:OperationSet" minOccurs="0"/>
      <xs:element name="Compressed" type="xs:string" minOccurs="0"/>
      <xs:element name="ID" type="msg:IDType" minOccurs="0" maxOccurs="unbounded"/>
      <xs:element name="Format" type="xs:string" minOccurs="0"/>
    </xs:sequence>
  </xs:complexType>
"""


def _typed_answers(x: str) -> str:
    return f"""  <xs:complexType name="{x}ResponseMessageType">
    <xs:sequence>
      <xs:element name="Header" type="msg:HeaderType"/>
      <xs:element name="Reply" type="msg:ReplyType"/>
      <xs:element name="Payload" type="tns:{x}PayloadType" minOccurs="0"/>
    </xs:sequence>
  </xs:complexType>
  <xs:complexType name="{x}FaultMessageType">
    <xs:sequence>
      <xs:element name="Reply" type="msg:ReplyType"/>
    </xs:sequence>
  </xs:complexType>
  <xs:element name="{x}ResponseMessage" type="tns:{x}ResponseMessageType"/>
  <xs:element name="{x}FaultMessage" type="tns:{x}FaultMessageType"/>
"""


def typed_wsdl(pattern: str, x: str, address: str = "") -> str:
    """Annex C.4: one pattern of one noun. Retrieve is Get under another name; Show is one way."""
    if pattern not in PATTERNS:
        raise Refusal(
            Rule.USAGE, f"'{clip(pattern)}' is no service pattern; there are {', '.join(PATTERNS)}"
        )
    name = f"{pattern}{x}"
    get = pattern in ("Get", "Retrieve")
    envelope = f"Get{x}Message" if get else f"{x}Message"
    port = f"{name}_Port" if get else f"{x}_Port"
    binding = f"{name}_Binding" if get else f"{x}_Binding"
    actions = f"{BASE}/Get{x}" if get else f"{BASE}/{x}"
    one_way = pattern == "Show"
    kind = "Event" if pattern in ("Send", "Receive", "Reply") else "Request"
    messages, operations, bound = [], [], []
    for verb in PATTERNS[pattern]:
        op = f"{verb}{x}"
        messages.append(
            f'  <wsdl:message name="{op}{kind}Message">\n'
            f'    <wsdl:part name="{op}{kind}Message" element="tm:{op}"/>\n  </wsdl:message>\n'
        )
        answer = answer_bound = ""
        if not one_way:
            answer = (
                f'\n      <wsdl:output name="{op}Response" message="tns:ResponseMessage"/>'
                f'\n      <wsdl:fault name="{op}Fault" message="tns:FaultMessage"/>'
            )
            answer_bound = (
                f'\n      <wsdl:output name="{op}Response">\n        <soap:body use="literal"/>'
                f'\n      </wsdl:output>\n      <wsdl:fault name="{op}Fault">'
                f'\n        <soap:fault name="{op}Fault" use="literal"/>\n      </wsdl:fault>'
            )
        operations.append(
            f'    <wsdl:operation name="{op}">\n'
            f'      <wsdl:input name="{op}{kind}" message="tns:{op}{kind}Message"/>{answer}\n'
            "    </wsdl:operation>\n"
        )
        bound.append(
            f'    <wsdl:operation name="{op}">\n'
            f'      <soap:operation soapAction="{actions}/{op}" style="document"/>\n'
            f'      <wsdl:input name="{op}{kind}">\n        <soap:body use="literal"/>\n'
            f"      </wsdl:input>{answer_bound}\n    </wsdl:operation>\n"
        )
    if not one_way:
        for answer in ("Response", "Fault"):
            messages.append(
                f'  <wsdl:message name="{answer}Message">\n    <wsdl:part name="{answer}Message" '
                f'element="tm:{x}{answer}Message"/>\n  </wsdl:message>\n'
            )
    location = attribute("location", address or f"{BASE}/{name}")
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<wsdl:definitions xmlns:wsdl="http://schemas.xmlsoap.org/wsdl/" \
xmlns:soap="http://schemas.xmlsoap.org/wsdl/soap/" xmlns:xs="http://www.w3.org/2001/XMLSchema" \
xmlns:tns="{BASE}/{name}" xmlns:tm="{BASE}/{envelope}" name="{name}" targetNamespace="{BASE}/{name}">
  <wsdl:types>
    <xs:schema targetNamespace="{BASE}/{name}" elementFormDefault="qualified">
      <xs:import namespace="{BASE}/{envelope}" schemaLocation="xsd/{envelope}.xsd"/>
    </xs:schema>
  </wsdl:types>
{"".join(messages)}  <wsdl:portType name="{port}">
{"".join(operations)}  </wsdl:portType>
  <wsdl:binding name="{binding}" type="tns:{port}">
    <soap:binding style="document" transport="http://schemas.xmlsoap.org/soap/http"/>
{"".join(bound)}  </wsdl:binding>
  <wsdl:service name="{name}">
    <wsdl:port name="{port}" binding="tns:{binding}">
      <soap:address{location}/>
    </wsdl:port>
  </wsdl:service>
</wsdl:definitions>
"""
