"""A strongly typed service of one noun (61968-100 Annex C): its requests become envelopes and back.

The typed elements differ from the envelope in names alone: root, Header, Request, Reply, Payload and
what stands directly in a Payload or a Get request are in the namespace of the typed schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lxml import etree

from gridpost.core.envelope import NAMESPACE
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.envelope.wsdl import BASE, EVENTS, PATTERNS, REQUESTS, typed_files, typed_wsdl
from gridpost.wire.xml import Schema

_KINDS = {
    **dict.fromkeys((*REQUESTS, "Get"), "RequestMessage"),
    **dict.fromkeys(EVENTS, "EventMessage"),
    "Reply": "ResponseMessage",
}


@dataclass(frozen=True, slots=True)
class TypedCall:
    """What an operation of a typed service was called with, as an envelope."""

    operation: str
    envelope: bytes
    namespace: str
    """In which its answer is written."""


class TypedService:
    """All patterns of one noun, as files and as operations."""

    def __init__(
        self,
        noun: str,
        schema: bytes,
        get_schema: bytes | None,
        folder: Path,
        more: Mapping[str, bytes] | None = None,
    ) -> None:
        """`folder`: where the noun's schema lies; `more`: what it includes from there, for clients."""
        self.noun = noun
        self.files: Mapping[str, bytes] = typed_files(noun, schema, get_schema, more)
        self._schemas = {
            f"{BASE}/{name}": _compiled(name, self.files, folder)
            for name in (f"{noun}Message", f"Get{noun}Message")
        }
        self._pattern_operations = {
            pattern: frozenset(f"{verb}{noun}" for verb in verbs)
            for pattern, verbs in PATTERNS.items()
        }

    def wsdl(self, pattern: str, address: str) -> str:
        return typed_wsdl(pattern, self.noun, address)

    def action(self, operation: str) -> str:
        get = operation == f"Get{self.noun}"
        return f"{BASE}/Get{self.noun}/{operation}" if get else f"{BASE}/{self.noun}/{operation}"

    def read(self, pattern: str, root: etree._Element) -> TypedCall:
        """Validated by the typed schema, before any code of the service sees it."""
        name = etree.QName(root)
        operations = self._pattern_operations.get(pattern)
        schema = self._schemas.get(name.namespace or "")
        if operations is None or name.localname not in operations or schema is None:
            raise Refusal(
                Rule.ENVELOPE_FORM,
                f"'{clip(name.localname)}' is no operation of {clip(pattern)}{self.noun}",
            )
        schema.validate(root)
        verb = name.localname.removesuffix(self.noun)
        self._agree(root, verb, name.namespace or "")
        namespace = name.namespace or ""
        _rename(root, namespace, NAMESPACE)
        root.tag = f"{{{NAMESPACE}}}{_KINDS[verb]}"
        return TypedCall(name.localname, etree.tostring(root, encoding="UTF-8"), namespace)

    def _agree(self, root: etree._Element, verb: str, namespace: str) -> None:
        """61968-100 Annex C: the operation's name is the verb and the noun of the header."""
        header = root.find(f"{{{namespace}}}Header")
        assert header is not None  # the schema demands it
        said = (header.findtext(f"{{{NAMESPACE}}}Verb"), header.findtext(f"{{{NAMESPACE}}}Noun"))
        if said != (verb.lower(), self.noun):
            raise Refusal(
                Rule.ENVELOPE_VERB,
                f"the operation is {verb}{self.noun}, and the header says"
                f" '{clip(said[0] or '')} {clip(said[1] or '')}'",
            )

    def written(self, event: bytes) -> tuple[str, str]:
        """An event as the operation of a service of this noun, and the action of it."""
        root = etree.fromstring(event)
        header = root.find(f"{{{NAMESPACE}}}Header")
        verb = "" if header is None else header.findtext(f"{{{NAMESPACE}}}Verb") or ""
        namespace, operation = f"{BASE}/{self.noun}Message", f"{verb.capitalize()}{self.noun}"
        _rename(root, NAMESPACE, namespace)
        root.tag = f"{{{namespace}}}{operation}"
        etree.cleanup_namespaces(root)
        self._schemas[namespace].validate(root)
        return etree.tostring(root, encoding="unicode"), self.action(operation)

    def answered(self, answer: bytes) -> bytes:
        """What such a service says, as the envelope that it stands for."""
        root = etree.fromstring(answer)
        name = etree.QName(root)
        _rename(root, name.namespace or "", NAMESPACE)
        root.tag = f"{{{NAMESPACE}}}{name.localname.removeprefix(self.noun)}"
        return etree.tostring(root, encoding="UTF-8")

    def answer(self, envelope: bytes, namespace: str) -> str:
        """A response or a fault as the typed element of the same service."""
        root = etree.fromstring(envelope)
        kind = etree.QName(root).localname
        _rename(root, NAMESPACE, namespace)
        root.tag = f"{{{namespace}}}{self.noun}{kind}"
        etree.cleanup_namespaces(root)
        return etree.tostring(root, encoding="unicode")


def _rename(root: etree._Element, old: str, new: str) -> None:
    """The levels that Annex C types anew; the contents of Header and Reply stay as they are."""
    for part in root.iterchildren(tag=etree.Element):
        name = etree.QName(part)
        if name.namespace != old:
            continue
        part.tag = f"{{{new}}}{name.localname}"
        typed = name.localname == "Payload" or (
            name.localname == "Request" and "/Get" in f"{old} {new}"
        )
        if typed:
            for child in part.iterchildren(f"{{{old}}}*"):
                child.tag = f"{{{new}}}{etree.QName(child).localname}"


class _Files(etree.Resolver):
    def __init__(self, files: Mapping[str, bytes]) -> None:
        super().__init__()
        self._files = files

    def resolve(self, system_url: str | None, public_id: str | None, context: Any) -> Any:
        data = self._files.get(f"xsd/{(system_url or '').rpartition('/')[2]}")
        if data is None:
            return None
        return self.resolve_string(data, context, base_url=system_url)


def _compiled(name: str, files: Mapping[str, bytes], folder: Path) -> Schema:
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    parser.resolvers.add(_Files(files))
    base = str(folder / f"{name}.xsd")
    try:
        return Schema(
            f"{name}.xsd", etree.fromstring(files[f"xsd/{name}.xsd"], parser, base_url=base)
        )
    except etree.XMLSchemaParseError as error:
        raise Refusal(Rule.USAGE, f"the typed service of {name} is not possible: {error}") from None
