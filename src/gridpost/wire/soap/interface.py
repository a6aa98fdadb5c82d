"""An interface that a WSDL describes: its operations, its schema, and how a request finds its operation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

from lxml import etree

from gridpost.core.identifiers import clip
from gridpost.wire.soap.envelope import Envelope, Path
from gridpost.wire.soap.fault import FaultCode, SoapError
from gridpost.wire.xml import Schema, schema_tree
from gridpost.wire.xml_text import attribute

_XSD = "{http://www.w3.org/2001/XMLSchema}schema"


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    request: str
    """The element in the body, `{namespace}local`."""
    action: str
    large: tuple[Path, ...] = ()
    """Where its requests carry a document."""


class Interface:
    def __init__(self, wsdl: str, address: str, operations: Iterable[Operation]) -> None:
        """`address` is what the file says of every port; served copies say where we are."""
        self._file = wsdl
        self._address = address
        self.operations = tuple(operations)
        self._by_request = {operation.request: operation for operation in self.operations}

    @property
    def large(self) -> tuple[Path, ...]:
        return tuple(path for operation in self.operations for path in operation.large)

    @cached_property
    def schema(self) -> Schema:
        (schema,) = schema_tree(self._file).iter(_XSD)
        # As a document of its own, so that the prefixes of the WSDL stay in scope.
        return Schema(self._file, etree.fromstring(etree.tostring(schema)))

    def wsdl(self, url: str) -> bytes:
        """The description with the address under which it was asked for."""
        text = files("gridpost.wire.schemas").joinpath(self._file).read_text("utf-8")
        return text.replace(
            attribute("location", self._address), attribute("location", url)
        ).encode()

    def find(self, request: str) -> Operation | None:
        return self._by_request.get(request)

    def choose(self, envelope: Envelope, action: str) -> Operation:
        """By the element in the body; an action that says otherwise is a contradiction."""
        operation = self.find(envelope.name)
        if operation is None:
            name = clip(etree.QName(envelope.body).localname)
            raise SoapError(FaultCode.SENDER, f"there is no operation with {name} here")
        if action and action != operation.action:
            raise SoapError(
                FaultCode.SENDER, f"the action '{clip(action)}' is not that of {operation.name}"
            )
        return operation
