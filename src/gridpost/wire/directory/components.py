"""A synchronisation on the wire (503 cl. 7.7.2, 7.8.3): the query, and the answer to it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta

from lxml import etree

from gridpost.core.component import Component
from gridpost.core.identifiers import ComponentCode, clip, component_code
from gridpost.core.refusal import Refusal
from gridpost.core.synchronisation import Answer, Couple, Grant
from gridpost.wire.directory import document as doc
from gridpost.wire.directory.component import ELEMENTS, TYPES, content, read_entry
from gridpost.wire.mades.values import named
from gridpost.wire.xml import XmlLimits
from gridpost.wire.xml_text import element

# A system of some ten thousand endpoints with three certificates each.
_ANSWER_LIMITS = XmlLimits(
    max_bytes=96 * 1024 * 1024,
    max_depth=16,
    max_elements=4_000_000,
    max_attributes=400_000,
    max_attribute_length=4_096,
)
# One couple for each of a thousand subsystems.
_QUERY_LIMITS = XmlLimits(
    max_bytes=512 * 1024,
    max_depth=6,
    max_elements=4_000,
    max_attributes=100,
    max_attribute_length=1_024,
)

# Nobody grants more; a larger number would only overflow the calendar.
MAX_TTL = timedelta(days=3650)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Query:
    """What a client holds, and whether it asks for the server's own subsystem only."""

    couples: tuple[Couple, ...] = ()
    only_home: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedAnswer:
    """An answer, and what had to be left out of it."""

    answer: Answer
    warnings: tuple[str, ...] = ()


class EncodedComponents:
    """Remembers the XML of entries: a directory sends the same ones to everybody.

    Keyed by identity: an entry is replaced and never changed, and comparing two of them costs as
    much as encoding one.
    """

    def __init__(self, capacity: int = 20_000) -> None:
        self._capacity = capacity
        self._known: OrderedDict[int, tuple[Component, bytes]] = OrderedDict()

    def of(self, component: Component) -> bytes:
        found = self._known.get(id(component))
        if found is not None:
            self._known.move_to_end(id(component))
            return found[1]
        name = ELEMENTS[component.type]
        octets = f"<{name}>{content(component)}</{name}>".encode()
        # The entry is kept as well: as long as it lives, nothing else has its identity.
        self._known[id(component)] = (component, octets)
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)
        return octets


def encode_components(answer: Answer, known: EncodedComponents | None = None) -> bytes:
    """An entry without a certificate is left out: the schema has no place for it, and such a
    component can neither connect nor be written to."""
    if not answer.grants:
        raise ValueError("an answer grants at least the home subsystem")
    texts = known if known is not None else EncodedComponents(capacity=0)
    entries = b"".join([texts.of(c) for c in answer.components if c.certificates])
    grants = "".join(
        "<componentDirectoryMetadata>"
        + element("componentDirectory", grant.component_directory)
        + f"<ttl>{max(0, grant.ttl // _MILLISECOND)}</ttl>"
        + element("contentID", grant.content_id)
        + "</componentDirectoryMetadata>"
        for grant in answer.grants
    )
    head, _, tail = doc.document("components", "|").rpartition(b"|")
    return b"".join(
        [
            head,
            b"<components>" + entries + b"</components>" if entries else b"",
            f"<metadata>{grants}</metadata>".encode(),
            tail,
        ]
    )


def decode_components(data: bytes) -> ReceivedAnswer:
    """Takes seconds for a large system: run it in a thread."""
    root = doc.read("components", "components", data, _ANSWER_LIMITS)
    warnings: list[str] = []
    grants: dict[ComponentCode, Grant] = {}
    for triplet in root.iterfind("metadata/componentDirectoryMetadata"):
        grant = _read_grant(triplet, warnings)
        if grant is not None and grants.setdefault(grant.component_directory, grant) != grant:
            warnings.append(f"{grant.component_directory} is granted twice: the first one counts")
    # The schema lets an entry leave out its home; with one subsystem it can be no other.
    home = next(iter(grants)) if len(grants) == 1 else None
    components: list[Component] = []
    for entry in root.iterfind("components/*"):
        component = read_entry(entry, TYPES[str(entry.tag)], home, warnings.append)
        if component is not None:
            components.append(component)
    return ReceivedAnswer(Answer(tuple(grants.values()), tuple(components)), tuple(warnings))


def encode_query(query: Query) -> bytes:
    couples = "".join(
        "<componentDirectory>"
        + element("componentDirectory", couple.component_directory)
        + element("contentID", couple.content_id)
        + "</componentDirectory>"
        for couple in query.couples
    )
    only_home = "<onlyHomeComponents>true</onlyHomeComponents>" if query.only_home else ""
    return doc.document("componentsQuery", couples + only_home)


def decode_query(data: bytes) -> Query:
    root = doc.read("components", "componentsQuery", data, _QUERY_LIMITS)
    return Query(
        tuple(
            Couple(
                named("componentDirectory", component_code, doc.text(couple, "componentDirectory")),
                doc.text(couple, "contentID"),
            )
            for couple in root.findall("componentDirectory")
        ),
        doc.token(root, "onlyHomeComponents") in ("true", "1"),
    )


def _read_grant(triplet: etree._Element, warnings: list[str]) -> Grant | None:
    code = doc.text(triplet, "componentDirectory")
    milliseconds = int(doc.token(triplet, "ttl"))
    try:
        named("componentDirectory", component_code, code)
    except Refusal as refusal:
        warnings.append(f"a subsystem is left out: {refusal.message}")
        return None
    if milliseconds <= 0:
        warnings.append(f"subsystem {clip(code)} is left out: its validity has ended")
        return None
    ttl = min(milliseconds, MAX_TTL // _MILLISECOND) * _MILLISECOND
    return Grant(ComponentCode(code), doc.text(triplet, "contentID"), ttl)
