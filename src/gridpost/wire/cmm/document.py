"""Messages of the capacity interface as XML (CMM section 5): strict on reading, exact on writing.

Everything read has passed `cmm-explicit.xsd`; the two spellings that the document itself mixes up
(see divergences, spellings of the capacity interface) are read alike and written as it prints them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any

from lxml import etree

from gridpost.core.allocation import AllocationType
from gridpost.core.instant import Instant
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.cmm.known_forms import KnownForms
from gridpost.wire.cmm.messages import (
    Alc,
    AlcResult,
    AllocationData,
    AllocationDataList,
    AllocationDataNtf,
    AllocationDataReq,
    AllocationDataResp,
    AllocationReq,
    AllocationResp,
    Allocations,
    AtcData,
    AtcDataList,
    AtcDataNtf,
    AtcDataReq,
    AtcDataResp,
    ErrorResp,
    Login,
    LoginResp,
    Message,
)
from gridpost.wire.xml import Schema, XmlLimits, load_schema
from gridpost.wire.xml_text import attribute

SCHEMA_NAME = "cmm-explicit.xsd"
CONTENT_TYPE = "text/xml;v=1.0"

LIMITS = XmlLimits(
    max_bytes=16 * 1024 * 1024,
    max_depth=8,
    max_attributes=1_000_000,
    max_attribute_length=16 * 1024,
)

_FORMS = KnownForms()


def encode(message: Message) -> bytes:
    return _WRITERS[type(message)](message).encode()


def decode(data: bytes, limits: XmlLimits = LIMITS) -> Message:
    known = _FORMS.read(data, limits)
    if known is not None:
        return known
    root = schema().read(data, limits)
    message = _READERS[str(root.tag)](root)
    if isinstance(message, AllocationReq):
        _FORMS.learn(data, limits, root)
    return message


def schema() -> Schema:
    return load_schema(SCHEMA_NAME)


# -- writing


# Periods of a market are few, and named again and again.
_KNOWN_TIMES = 4096


@lru_cache(_KNOWN_TIMES)
def _time(at: datetime) -> str:
    return Instant.of(at).text


# So are areas, borders and balancing groups.
_known = lru_cache(_KNOWN_TIMES)(attribute)


def _result(message: str, success: bool) -> str:
    text = attribute("message", message) if message else ""
    return f'{text} success="{"true" if success else "false"}"'


def _login(message: Login) -> str:
    arguments = "" if message.arguments is None else attribute("arguments", message.arguments)
    return f"<Login{arguments}/>"


def _allocation_req(message: AllocationReq) -> str:
    parts = [f'<AllocationReq type="{message.type.value}">']
    for allocations in message.allocations:
        parts.append(
            f"<Allocations{_known('inArea', allocations.in_area)}"
            f"{_known('outArea', allocations.out_area)}>"
        )
        parts += [
            f"<Alc{attribute('clientId', alc.client_id)}{attribute('bmCode', alc.bm_code)}"
            f' periodStart="{_time(alc.period_start)}" periodEnd="{_time(alc.period_end)}"'
            f' quantity="{alc.quantity}"/>'
            for alc in allocations.items
        ]
        parts.append("</Allocations>")
    parts.append("</AllocationReq>")
    return "".join(parts)


def _areas(area1: str, area2: str) -> str:
    return f"{attribute('area1', area1)}{attribute('area2', area2)}"


def _atc_data_req(message: AtcDataReq) -> str:
    return (
        f'<AtcDataReq date="{_time(message.date)}">'
        f"<InterConnector{_areas(message.area1, message.area2)}/></AtcDataReq>"
    )


def _allocation_data_req(message: AllocationDataReq) -> str:
    return (
        f"<AllocationDataReq{_known('balancingGroup', message.balancing_group)}"
        f' from="{_time(message.start)}" to="{_time(message.end)}">'
        f"<interConnector{_areas(message.area1, message.area2)}/></AllocationDataReq>"
    )


def _login_resp(message: LoginResp) -> str:
    return f"<LoginResp{_result(message.message, message.success)}/>"


def _allocation_resp(message: AllocationResp) -> str:
    parts = ["<AllocationResp>"]
    for item in message.items:
        given = "" if item.allocation_id is None else attribute("alclid", item.allocation_id)
        confirmed = "" if item.confirmed is None else f' confQty="{item.confirmed}"'
        parts.append(
            f"<Alc{given}{attribute('clientId', item.client_id)}{confirmed}"
            f"{_result(item.message, item.success)}/>"
        )
    parts.append("</AllocationResp>")
    return "".join(parts)


def _atc_lists(lists: Iterable[AtcDataList]) -> str:
    parts = []
    for values in lists:
        parts.append(
            f'<AtcDataList{_known("border", values.border)} date="{_time(values.date)}"'
            f"{_known('inArea', values.in_area)}{_known('outArea', values.out_area)}>"
        )
        parts += [
            f'<AtcData periodEnd="{_time(item.period_end)}"'
            f' periodStart="{_time(item.period_start)}" quantity="{item.quantity}"/>'
            for item in values.items
        ]
        parts.append("</AtcDataList>")
    return "".join(parts)


def _allocation_lists(lists: Iterable[AllocationDataList]) -> str:
    parts = []
    for values in lists:
        parts.append(
            f"<AllocationDataList{_known('balancingGroup', values.balancing_group)}"
            f"{_known('inArea', values.in_area)}{_known('outArea', values.out_area)}>"
        )
        parts += [
            f"<AllocationData{_known('activityType', item.activity_type)}"
            f"{attribute('allocationId', item.allocation_id)}"
            f' periodEnd="{_time(item.period_end)}" periodStart="{_time(item.period_start)}"'
            f' quantity="{item.quantity}" time="{_time(item.time)}"/>'
            for item in values.items
        ]
        parts.append("</AllocationDataList>")
    return "".join(parts)


def _atc_data_resp(message: AtcDataResp) -> str:
    start = f"<AtcDataResp{_result(message.message, message.success)}>"
    return f"{start}{_atc_lists(message.lists)}</AtcDataResp>"


def _allocation_data_resp(message: AllocationDataResp) -> str:
    start = f"<AllocationDataResp{_result(message.message, message.success)}>"
    return f"{start}{_allocation_lists(message.lists)}</AllocationDataResp>"


def _error_resp(message: ErrorResp) -> str:
    return f"<ErrorResp{attribute('message', message.message)}/>"


def _atc_data_ntf(message: AtcDataNtf) -> str:
    return f"<AtcDataNtf>{_atc_lists(message.lists)}</AtcDataNtf>"


def _allocation_data_ntf(message: AllocationDataNtf) -> str:
    return f"<AllocationDataNtf>{_allocation_lists(message.lists)}</AllocationDataNtf>"


# -- reading


def _at(element: etree._Element, name: str) -> datetime:
    return _moment(element.attrib[name])


@lru_cache(_KNOWN_TIMES)
def _moment(text: str) -> datetime:
    return Instant.parse(text.strip()).at


def _text(element: etree._Element, name: str) -> str:
    return element.attrib.get(name, "")


def _success(element: etree._Element) -> bool:
    return element.attrib["success"].strip() in ("true", "1")


def _read_allocation_req(root: etree._Element) -> AllocationReq:
    kinds = {root.attrib[name] for name in ("type", "allocationType") if name in root.attrib}
    if len(kinds) != 1:
        raise Refusal(
            Rule.SCHEMA_INVALID,
            "AllocationReq needs one type: ACE, AON or IOC",
            "the attributes type and allocationType mean the same",
        )
    return AllocationReq(
        AllocationType(kinds.pop()),
        tuple(
            Allocations(
                part.attrib["inArea"],
                part.attrib["outArea"],
                tuple(
                    Alc(
                        alc.attrib["clientId"],
                        _at(alc, "periodStart"),
                        _at(alc, "periodEnd"),
                        int(alc.attrib["quantity"]),
                        _text(alc, "bmCode"),
                    )
                    for alc in part.iterchildren("Alc")
                ),
            )
            for part in root.iterchildren("Allocations")
        ),
    )


def _interconnector(root: etree._Element) -> tuple[str, str]:
    [found] = root.iterchildren("InterConnector", "interConnector")
    return found.attrib["area1"], found.attrib["area2"]


def _read_atc_lists(root: etree._Element) -> tuple[AtcDataList, ...]:
    return tuple(
        AtcDataList(
            values.attrib["border"],
            _at(values, "date"),
            values.attrib["inArea"],
            values.attrib["outArea"],
            tuple(
                AtcData(
                    _at(item, "periodStart"), _at(item, "periodEnd"), int(item.attrib["quantity"])
                )
                for item in values.iterchildren("AtcData")
            ),
        )
        for values in root.iterchildren("AtcDataList")
    )


def _read_allocation_lists(root: etree._Element) -> tuple[AllocationDataList, ...]:
    return tuple(
        AllocationDataList(
            values.attrib["balancingGroup"],
            values.attrib["inArea"],
            values.attrib["outArea"],
            tuple(
                AllocationData(
                    item.attrib["activityType"],
                    item.attrib["allocationId"],
                    _at(item, "periodStart"),
                    _at(item, "periodEnd"),
                    int(item.attrib["quantity"]),
                    _at(item, "time"),
                )
                for item in values.iterchildren("AllocationData")
            ),
        )
        for values in root.iterchildren("AllocationDataList")
    )


def _read_allocation_resp(root: etree._Element) -> AllocationResp:
    return AllocationResp(
        tuple(
            AlcResult(
                alc.attrib["clientId"],
                _success(alc),
                _text(alc, "message"),
                alc.attrib.get("alclid"),
                int(alc.attrib["confQty"]) if "confQty" in alc.attrib else None,
            )
            for alc in root.iterchildren("Alc")
        )
    )


_WRITERS: dict[type, Callable[[Any], str]] = {
    Login: _login,
    AllocationReq: _allocation_req,
    AtcDataReq: _atc_data_req,
    AllocationDataReq: _allocation_data_req,
    LoginResp: _login_resp,
    AllocationResp: _allocation_resp,
    AtcDataResp: _atc_data_resp,
    AllocationDataResp: _allocation_data_resp,
    ErrorResp: _error_resp,
    AtcDataNtf: _atc_data_ntf,
    AllocationDataNtf: _allocation_data_ntf,
}

_READERS: dict[str, Callable[[etree._Element], Message]] = {
    "Login": lambda root: Login(root.attrib.get("arguments")),
    "AllocationReq": _read_allocation_req,
    "AtcDataReq": lambda root: AtcDataReq(_at(root, "date"), *_interconnector(root)),
    "AllocationDataReq": lambda root: AllocationDataReq(
        root.attrib["balancingGroup"], _at(root, "from"), _at(root, "to"), *_interconnector(root)
    ),
    "LoginResp": lambda root: LoginResp(_success(root), _text(root, "message")),
    "AllocationResp": _read_allocation_resp,
    "AtcDataResp": lambda root: AtcDataResp(
        _success(root), _text(root, "message"), _read_atc_lists(root)
    ),
    "AllocationDataResp": lambda root: AllocationDataResp(
        _success(root), _text(root, "message"), _read_allocation_lists(root)
    ),
    "ErrorResp": lambda root: ErrorResp(root.attrib["message"]),
    "AtcDataNtf": lambda root: AtcDataNtf(_read_atc_lists(root)),
    "AllocationDataNtf": lambda root: AllocationDataNtf(_read_allocation_lists(root)),
}
