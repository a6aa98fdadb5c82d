"""Handlers that come with the bus: objects of a noun with a life cycle, and readings of meters.

They are what a system of record does with each verb of Annex B, in the transaction of the bus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from lxml import etree

from gridpost.core.bus import BusUnit, ObjectName, ObjectState, Reading, StoredObject
from gridpost.core.envelope import Error, Identifier, Level, Request, RequestMessage
from gridpost.core.envelope_exchange import complete, failed
from gridpost.core.identifiers import clip
from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.handlers import Answer, Handlers
from gridpost.services.bus.operations import element_operation
from gridpost.wire.envelope import Fragment, parts, xml_payload
from gridpost.wire.xml import parse

READINGS = "http://iec.ch/TC57/2011/MeterReadings#"
CONTROLS = "http://iec.ch/TC57/2011/EndDeviceControls#"
Now = Callable[[], datetime]
CONTROL_PARTS = (
    "mRID", "drProgramLevel", "drProgramMandatory", "issuerID", "issuerTrackingID", "reason",
    "EndDeviceControlType", "EndDeviceGroups", "EndDevices", "Names", "scheduledInterval",
    "UsagePoints",
)  # fmt: skip
"""The order that our schema of EndDeviceControls has; what it does not know comes last."""


@dataclass(frozen=True, slots=True)
class Relation:
    """61968-100 cl. 6.2.2: the business rule of one relation of an object."""

    adds: bool = False
    """A change adds the given members; otherwise they take the place of the old ones."""
    noun: str = ""
    """The members are objects of this noun, and must be known here."""


Relations = Mapping[str, Relation]
"""By the name of the element."""


def register_reference(handlers: Handlers, now: Now, relations: Relations | None = None) -> None:
    """MeterReadings and EndDeviceControls; `relations` are those of EndDeviceControls."""
    MeterReadings().register(handlers)
    controls = Objects(
        "EndDeviceControls", "EndDeviceControl", CONTROLS, now, relations or {}, CONTROL_PARTS
    )
    controls.register(handlers)


def _unknown(identifier: Identifier, level: Level = Level.FATAL) -> Error:
    return Error(
        Rule.OBJECT_UNKNOWN.name, level, f"'{clip(identifier.value)}' is not known", id=identifier
    )


def _ids(request: RequestMessage) -> tuple[Identifier, ...]:
    return request.request.ids if request.request is not None else ()


def _elements(request: RequestMessage, name: str) -> Iterator[etree._Element]:
    """One after the other: a large payload is never held as a whole."""
    if request.payload is not None:
        for element in parts(request.payload):
            if _local(element) == name:
                yield element


def _local(element: etree._Element) -> str:
    return etree.QName(element).localname if isinstance(element.tag, str) else ""


def _text(element: etree._Element, *path: str) -> str | None:
    found: etree._Element | None = element
    for name in path:
        if found is None:
            return None
        found = next((child for child in found if _local(child) == name), None)
    return None if found is None else (found.text or "").strip()


class Objects:
    """The master of one noun: create, change, cancel, close, delete and get."""

    def __init__(
        self,
        noun: str,
        element: str,
        namespace: str,
        now: Now,
        relations: Relations,
        order: Sequence[str] = (),
    ) -> None:
        """`order`: of the parts of an object, so that a changed one is still what its schema says."""
        self._noun, self._element, self._namespace, self._now = noun, element, namespace, now
        self._relations = relations
        self._order = {name: place for place, name in enumerate(order)}

    def register(self, handlers: Handlers) -> None:
        noun = self._noun
        handlers.handles("create", noun)(self.create)
        handlers.handles("change", noun)(self.change)
        handlers.handles("cancel", noun)(self._ending(ObjectState.CANCELED))
        handlers.handles("close", noun)(self._ending(ObjectState.CLOSED))
        handlers.handles("delete", noun)(self.delete)
        handlers.handles("get", noun)(self.get)

    def create(self, request: RequestMessage, unit: BusUnit) -> object:
        errors, ids = [], []
        for element in self._given(request):
            mrid = _text(element, "mRID") or str(uuid4())
            if unit.find(self._noun, Identifier(mrid)) is not None:
                errors.append(
                    Error(
                        Rule.OBJECT_EXISTS.name,
                        Level.FATAL,
                        f"'{clip(mrid)}' is there already",
                        id=Identifier(mrid),
                    )
                )
                continue
            self._store(unit, element, mrid, ObjectState.ACTIVE)
            ids.append(Identifier(mrid))
        errors += self._unrelated(request, unit)
        # 61968-100 cl. 6.3.4: an error for each object; a create is done wholly or not at all.
        return failed(*errors) if errors else ids

    def change(self, request: RequestMessage, unit: BusUnit) -> object:
        """61968-100 cl. 6.10.1: only what is given changes, members of a relation by its rule."""
        errors, ids, changed = [], [], False
        for element in self._given(request):
            stored = self._known(element, unit)
            if stored is None:
                errors.append(_unknown(Identifier(_text(element, "mRID") or "")))
                continue
            current = parse(stored.content)
            before = _parts(current)
            self._merge(element, current)
            ids.append(Identifier(stored.mrid))
            if _parts(current) != before:
                changed = True
                self._store(unit, current, stored.mrid, stored.state)
        errors += self._unrelated(request, unit)
        return failed(*errors) if errors else Answer(complete(ids), changed=changed)

    def _merge(self, given: etree._Element, current: etree._Element) -> None:
        added = {name for name, relation in self._relations.items() if relation.adds}
        for name in {_local(child) for child in given} - {""} - added:
            for old in [child for child in current if _local(child) == name]:
                current.remove(old)
        known = _parts(current)
        for child in given:
            if _local(child) not in added or _canonical(child) not in known:
                current.append(deepcopy(child))

    def _unrelated(self, request: RequestMessage, unit: BusUnit) -> list[Error]:
        """61968-100 Annex A, Error.relatedID: links to objects that nobody knows here."""
        errors = []
        for element in self._given(request):
            own = Identifier(_text(element, "mRID") or "")
            for child in element:
                relation = self._relations.get(_local(child))
                if relation is None or not relation.noun:
                    continue
                other = Identifier(_text(child, "mRID") or child.get("ref") or "")
                if unit.find(relation.noun, other) is None:
                    reason = f"'{clip(own.value)}' names '{clip(other.value)}', which is not known"
                    rule = Rule.OBJECT_UNKNOWN.name
                    errors.append(Error(rule, Level.FATAL, reason, id=own, related_id=other))
        return errors

    def delete(self, request: RequestMessage, unit: BusUnit) -> object:
        if element_operation(request):
            return self._remove_elements(request, unit)
        return self._ending(ObjectState.DELETED)(request, unit)

    def _remove_elements(self, request: RequestMessage, unit: BusUnit) -> object:
        for element in self._given(request):
            stored = self._known(element, unit)
            if stored is None:
                return failed(_unknown(Identifier(_text(element, "mRID") or "")))
            current = parse(stored.content)
            for given in element:
                if _local(given) in ("mRID", ""):
                    continue
                for child in list(current):
                    same = _local(child) == _local(given)
                    if same and (not len(given) or _canonical(child) == _canonical(given)):
                        current.remove(child)
            self._store(unit, current, stored.mrid, stored.state)
        return None

    def _ending(self, state: ObjectState) -> Callable[[RequestMessage, BusUnit], object]:
        def end(request: RequestMessage, unit: BusUnit) -> object:
            ids = list(_ids(request))
            if not ids and request.payload is not None:
                ids = [*request.payload.ids] or [
                    Identifier(mrid)
                    for element in _elements(request, self._element)
                    if (mrid := _text(element, "mRID"))
                ]
            if not ids:
                raise Refusal(Rule.ENVELOPE_PAYLOAD, "say in Request.ID which objects are meant")
            errors, changed = [], False
            for identifier in ids:
                stored = unit.find(self._noun, identifier)
                if stored is None:
                    errors.append(_unknown(identifier))
                    continue
                if stored.state is state:
                    continue
                changed = True
                ended = StoredObject(self._noun, stored.mrid, stored.content, state, stored.names)
                unit.put(ended, self._now())
            return failed(*errors) if errors else Answer(complete(), changed=changed)

        return end

    def get(self, request: RequestMessage, unit: BusUnit) -> object:
        wanted = _wanted(request, self._noun, self._element)
        found: list[StoredObject] = []
        errors = []
        if not wanted:
            found = list(unit.all(self._noun))
        for identifier in wanted:
            stored = unit.find(self._noun, identifier)
            if stored is None:
                errors.append(_unknown(identifier, Level.WARNING))
            else:
                found.append(stored)
        if not found:
            return Answer(failed(*errors) if errors else complete())
        body = "".join(stored.content for stored in found)
        payload = xml_payload(f'<{self._noun} xmlns="{self._namespace}">{body}</{self._noun}>')
        return Answer(complete(warnings=errors), payload)

    def _given(self, request: RequestMessage) -> list[etree._Element]:
        elements = list(_elements(request, self._element))
        if not elements:
            raise Refusal(Rule.ENVELOPE_PAYLOAD, f"the payload has no {self._element}")
        return elements

    def _known(self, element: etree._Element, unit: BusUnit) -> StoredObject | None:
        mrid = _text(element, "mRID")
        return None if not mrid else unit.find(self._noun, Identifier(mrid))

    def _store(self, unit: BusUnit, element: etree._Element, mrid: str, state: ObjectState) -> None:
        if _text(element, "mRID") != mrid:
            own = etree.Element(f"{{{self._namespace}}}mRID")
            own.text = mrid
            element.insert(0, own)
        last = len(self._order)
        element[:] = sorted(element, key=lambda part: self._order.get(_local(part), last))
        names = tuple(
            ObjectName(
                _text(name, "name") or "",
                _text(name, "NameType", "name") or "",
                _text(name, "NameType", "NameTypeAuthority", "name") or "",
            )
            for name in element
            if _local(name) == "Names"
        )
        text = etree.tostring(element, encoding="unicode", with_tail=False)
        unit.put(StoredObject(self._noun, mrid, text, state, names), self._now())


def _canonical(element: etree._Element) -> bytes:
    return Fragment(element).canonical


def _parts(element: etree._Element) -> list[bytes]:
    """What an object says, in whichever order."""
    return sorted(_canonical(child) for child in element if _local(child))


def _wanted(request: RequestMessage, noun: str, element: str) -> list[Identifier]:
    """61968-100 cl. 6.3.3: what a Get profile says takes precedence over the ids."""
    asked = request.request or Request()
    profile = asked.profile(noun)
    if isinstance(profile, Fragment):
        mrids = [_text(child, "mRID") for child in profile.element if _local(child) == element]
        if mrids:
            return [Identifier(mrid) for mrid in mrids if mrid]
    return list(asked.ids)


class MeterReadings:
    """Readings by meter and time."""

    def register(self, handlers: Handlers) -> None:
        handlers.handles("create", "MeterReadings")(self.create)
        handlers.handles("change", "MeterReadings")(self.create)
        handlers.handles("get", "MeterReadings")(self.get)

    def create(self, request: RequestMessage, unit: BusUnit) -> object:
        readings = []
        for element in _elements(request, "MeterReading"):
            meter = _text(element, "Meter", "mRID")
            if not meter:
                raise Refusal(Rule.ENVELOPE_PAYLOAD, "a MeterReading needs a Meter with an mRID")
            for item in element:
                if _local(item) != "Readings":
                    continue
                kind = next((c.get("ref") or "" for c in item if _local(c) == "ReadingType"), "")
                at = Instant.parse(_text(item, "timeStamp") or "").at
                readings.append(Reading(meter, kind, at, _text(item, "value") or ""))
        if not readings:
            raise Refusal(Rule.ENVELOPE_PAYLOAD, "the payload has no Readings")
        unit.add_readings(readings)
        return None

    def get(self, request: RequestMessage, unit: BusUnit) -> object:
        asked = request.request or Request()
        start = asked.start_time.at if asked.start_time is not None else None
        end = asked.end_time.at if asked.end_time is not None else None
        profile = asked.profile("MeterReadings")
        wanted = _wanted(request, "MeterReadings", "EndDevice")
        if isinstance(profile, Fragment):
            given = profile.element
            first = _text(given, "TimeSchedule", "scheduleInterval", "start")
            last = _text(given, "TimeSchedule", "scheduleInterval", "end")
            start = Instant.parse(first).at if first else start
            end = Instant.parse(last).at if last else end
        found = list(unit.readings([i.value for i in wanted], start, end))
        meters = {reading.meter for reading in found}
        errors = [_unknown(i, Level.WARNING) for i in wanted if i.value not in meters]
        if not found:
            return Answer(failed(*errors) if errors else complete())
        return Answer(complete(warnings=errors), xml_payload(_written(found)))


def _written(readings: Sequence[Reading]) -> str:
    root = etree.Element(f"{{{READINGS}}}MeterReadings", nsmap={"m": READINGS})
    current: etree._Element | None = None
    meter = None
    for reading in readings:
        if current is None or reading.meter != meter:
            meter = reading.meter
            current = _child(root, "MeterReading")
            _child(_child(current, "Meter"), "mRID", meter)
        item = _child(current, "Readings")
        _child(item, "timeStamp", Instant.of(reading.at).text)
        _child(item, "value", reading.value)
        if reading.reading_type:
            _child(item, "ReadingType").set("ref", reading.reading_type)
    return etree.tostring(root, encoding="unicode")


def _child(parent: etree._Element, name: str, text: str | None = None) -> etree._Element:
    child = etree.SubElement(parent, f"{{{READINGS}}}{name}")
    child.text = text
    return child
