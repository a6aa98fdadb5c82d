"""May one schema follow another? (61968-100 cl. 10: namespaces stay while old messages stay valid.)"""

from __future__ import annotations

from dataclasses import dataclass

from lxml import etree

from gridpost.core.refusal import Refusal, Rule

_XSD = "{http://www.w3.org/2001/XMLSchema}"
_UNBOUNDED = 1 << 30


@dataclass(frozen=True, slots=True)
class Change:
    """`breaking`: a message that was valid may not be so any more."""

    what: str
    breaking: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    changes: tuple[Change, ...]
    errors: tuple[str, ...]
    kind: str
    """none, minor or major: what the change is, whatever its version says."""


def compare(old: bytes, new: bytes) -> Verdict:
    """What changed, and what of the rules for versions was not kept."""
    before, after = _parse(old), _parse(new)
    changes = [
        *_globals(before, after, "element"),
        *_globals(before, after, "complexType"),
        *_globals(before, after, "simpleType"),
    ]
    for kind in ("complexType", "element"):
        for name, declared in _named(before, kind).items():
            other = _named(after, kind).get(name)
            if other is not None:
                changes += _content(name, declared, other)
    for name, declared in _named(before, "simpleType").items():
        other = _named(after, "simpleType").get(name)
        if other is not None:
            changes += _values(name, declared, other)
    breaking = any(change.breaking for change in changes)
    kind = "major" if breaking else "minor" if changes else "none"
    return Verdict(tuple(changes), tuple(_errors(before, after, kind)), kind)


def _errors(before: etree._Element, after: etree._Element, kind: str) -> list[str]:
    errors = []
    same = before.get("targetNamespace") == after.get("targetNamespace")
    old, new = _version(before), _version(after)
    if old is None or new is None:
        return ["both schemas need a version like 1.0"]
    if kind == "major":
        if same:
            errors.append("old messages are not valid any more: a new target namespace is needed")
        if new[0] <= old[0]:
            errors.append(f"the major number must rise above {old[0]}")
    elif not same:
        errors.append("old messages stay valid: the target namespace must stay the same")
    elif kind == "minor":
        if new[0] != old[0] or new[1] <= old[1]:
            errors.append(f"the version must be {old[0]}.{old[1] + 1}")
        if _notes(after) <= _notes(before):
            errors.append("an annotation must say what is new in this version")
    return errors


def _parse(data: bytes) -> etree._Element:
    try:
        root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as error:
        raise Refusal(Rule.MALFORMED_XML, f"the schema is not well-formed: {error.msg}") from None
    if root.tag != f"{_XSD}schema":
        raise Refusal(Rule.SCHEMA_CHANGE, "this is not an XML schema")
    return root


def _version(root: etree._Element) -> tuple[int, int] | None:
    parts = (root.get("version") or "").split(".")
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        return None
    return int(parts[0]), int(parts[1])


def _notes(root: etree._Element) -> int:
    return len(list(root.iter(f"{_XSD}documentation")))


def _named(root: etree._Element, kind: str) -> dict[str, etree._Element]:
    return {e.get("name") or "": e for e in root.iterchildren(f"{_XSD}{kind}")}


def _globals(before: etree._Element, after: etree._Element, kind: str) -> list[Change]:
    old, new = _named(before, kind), _named(after, kind)
    gone = [Change(f"{kind} {name} is gone", True) for name in old.keys() - new.keys()]
    added = [Change(f"{kind} {name} is new", False) for name in new.keys() - old.keys()]
    return sorted(gone + added, key=lambda change: change.what)


def _local(name: str | None) -> str | None:
    """Types are compared without their prefix: it is free."""
    return None if name is None else name.rpartition(":")[2]


def _particles(declared: etree._Element) -> list[etree._Element]:
    """Elements of this type itself, not of types inside its elements."""
    found: list[etree._Element] = []
    for child in declared:
        if child.tag == f"{_XSD}element":
            found.append(child)
        elif isinstance(child.tag, str) and child.tag != f"{_XSD}annotation":
            found += _particles(child)
    return found


def _bounds(element: etree._Element) -> tuple[int, int]:
    highest = element.get("maxOccurs", "1")
    return int(element.get("minOccurs", "1")), _UNBOUNDED if highest == "unbounded" else int(
        highest
    )


def _content(name: str, before: etree._Element, after: etree._Element) -> list[Change]:
    changes = []
    if _local(before.get("type")) != _local(after.get("type")):
        changes.append(Change(f"{name} has another type", True))
    old = {e.get("name") or _local(e.get("ref")) or "": e for e in _particles(before)}
    new = {e.get("name") or _local(e.get("ref")) or "": e for e in _particles(after)}
    for child, declared in old.items():
        other = new.get(child)
        if other is None:
            changes.append(Change(f"{name}.{child} is gone", True))
            continue
        if _local(declared.get("type")) != _local(other.get("type")):
            changes.append(Change(f"{name}.{child} has another type", True))
        (least, most), (new_least, new_most) = _bounds(declared), _bounds(other)
        if (least, most) != (new_least, new_most):
            narrower = new_least > least or new_most < most
            changes.append(Change(f"{name}.{child} occurs differently", narrower))
        changes += _content(f"{name}.{child}", declared, other)
    for child, declared in new.items():
        if child not in old:
            changes.append(Change(f"{name}.{child} is new", _bounds(declared)[0] > 0))
    kept = [child for child in new if child in old]
    if kept != [child for child in old if child in new]:
        changes.append(Change(f"{name}: the order changed", True))
    return changes


def _values(name: str, before: etree._Element, after: etree._Element) -> list[Change]:
    old = {e.get("value") for e in before.iter(f"{_XSD}enumeration")}
    new = {e.get("value") for e in after.iter(f"{_XSD}enumeration")}
    gone = [Change(f"{name}: the value {value} is gone", True) for value in old - new]
    added = [Change(f"{name}: the value {value} is new", not old) for value in new - old]
    return sorted(gone + added, key=lambda change: change.what)
