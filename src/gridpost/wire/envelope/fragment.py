"""A foreign element inside an envelope: kept as it came, compared by its canonical XML."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from lxml import etree

from gridpost.core.envelope import NAMESPACE, OTHER_NAMESPACE
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.xml import DEFAULT_LIMITS, XmlLimits, parse

_OWN = (f"{{{NAMESPACE}}}", f"{{{OTHER_NAMESPACE}}}")


class Fragment:
    """core.envelope.Xml. Nothing is serialised until somebody asks."""

    __slots__ = ("_canonical", "_found", "_later", "_tag", "_text")

    def __init__(self, element: etree._Element) -> None:
        self._found: etree._Element | None = element
        self._later: Callable[[], etree._Element] | None = None
        self._text: str | None = None
        self._canonical: bytes | None = None
        self._tag = str(element.tag)
        tag = self._tag
        if tag[0] != "{" or tag.startswith(_OWN):
            raise Refusal(
                Rule.ENVELOPE_FORM,
                f"an element '{self.local_name}' of the envelope or of no namespace has no place here",
            )

    @classmethod
    def later(cls, tag: str, find: Callable[[], etree._Element]) -> Fragment:
        """An element of a document that is known to be good, and is parsed when it is needed."""
        fragment = cls.__new__(cls)
        fragment._found, fragment._later, fragment._tag = None, find, tag
        fragment._text = fragment._canonical = None
        return fragment

    @property
    def _element(self) -> etree._Element:
        if self._found is None:
            assert self._later is not None
            self._found = self._later()
        return self._found

    @classmethod
    def parse(cls, text: str | bytes, limits: XmlLimits = DEFAULT_LIMITS) -> Fragment:
        return cls(parse(text, limits))

    @property
    def namespace(self) -> str:
        return self._tag[1:].rpartition("}")[0]

    @property
    def local_name(self) -> str:
        return self._tag.rpartition("}")[2]

    @property
    def element(self) -> etree._Element:
        """A copy to work with: fragments do not change."""
        return deepcopy(self._element)

    @property
    def text(self) -> str:
        if self._text is None:
            element, kept = self._element, self._element.nsmap
            if OTHER_NAMESPACE in kept.values():
                # We pass envelopes on in our own namespace, and say nothing of this one.
                element = deepcopy(element)
                names = [p for p, uri in kept.items() if p is not None and uri != OTHER_NAMESPACE]
                etree.cleanup_namespaces(element, keep_ns_prefixes=names)
            # With the prefixes of its ancestors: a value may be a QName.
            self._text = etree.tostring(element, encoding="unicode", with_tail=False)
        return self._text

    @property
    def canonical(self) -> bytes:
        if self._canonical is None:
            tree = etree.fromstring(self.text)
            self._canonical = etree.tostring(tree, method="c14n", exclusive=True)
        return self._canonical

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fragment):
            return NotImplemented
        return self._element is other._element or self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __repr__(self) -> str:
        return f"Fragment({self.text!r})"
