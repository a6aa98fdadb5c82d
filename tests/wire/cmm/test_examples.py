"""Every example of the interface document, read and written again (CMM section 5)."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.resources import files

import pytest
from lxml import etree

from gridpost.core.allocation import AllocationType
from gridpost.wire.cmm import (
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
    decode,
    encode,
)  # fmt: skip


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


# EIC codes have the 16 characters that print lost; the second text is what we write, where it differs.
EXAMPLES = {
    "login": (
        '<Login arguments="X_Border:AT-CZ|AT-SK,X_Event:ALLOCATION,x-match:all" />',
        Login("X_Border:AT-CZ|AT-SK,X_Event:ALLOCATION,x-match:all"),
    ),
    "allocation request": (
        """<AllocationReq type="AON">
  <Allocations inArea="10YDK-1--------W" outArea="10YDE-EON------1">
    <Alc clientId="123456" bmCode=""
      periodStart="2014-07-09T15:00:00.000Z"
      periodEnd="2014-07-09T16:00:00.000Z"
      quantity="1000000"/>
  </Allocations>
</AllocationReq>""",
        AllocationReq(
            AllocationType.AON,
            (
                Allocations(
                    "10YDK-1--------W",
                    "10YDE-EON------1",
                    (Alc("123456", at("2014-07-09T15:00Z"), at("2014-07-09T16:00Z"), 1000000),),
                ),
            ),
        ),
    ),
    "atc request": (
        """<AtcDataReq date="2014-07-09T00:00:00.000Z">
  <InterConnector area1="10YDE-EON------1" area2="10YDK-1--------W"/>
</AtcDataReq>""",
        AtcDataReq(at("2014-07-09T00:00Z"), "10YDE-EON------1", "10YDK-1--------W"),
    ),
    "allocation data request": (
        """<AllocationDataReq balancingGroup="11XEEX-INTRA---D"
  from="2014-06-09T00:00:00.000+02:00" to="2014-07-10T13:42:09.000+02:00">
  <interConnector area1="10YFR-RTE------C" area2="10YDE-RWENET---I"/>
</AllocationDataReq>""",
        AllocationDataReq(
            "11XEEX-INTRA---D",
            at("2014-06-08T22:00Z"),
            at("2014-07-10T11:42:09Z"),
            "10YFR-RTE------C",
            "10YDE-RWENET---I",
        ),
    ),
    "halt": (
        """<AllocationResp>
  <Alc clientId="12345" message="The service is in HALT." success="false"/>
</AllocationResp>""",
        AllocationResp((AlcResult("12345", False, "The service is in HALT."),)),
    ),
    "allocation response": (
        """<AllocationResp>
  <Alc alclid="302572" clientId="12345" confQty="1000"
    message="Allocated" success="true"/>
</AllocationResp>""",
        AllocationResp((AlcResult("12345", True, "Allocated", "302572", 1000),)),
    ),
    "atc response": (
        """<AtcDataResp success="true">
  <AtcDataList border="DE-DK" date="2014-07-10T22:00:00.000Z"
    inArea="10YDK-1--------W" outArea="10YDE-EON------1">
    <AtcData periodEnd="2014-07-10T23:00:00.000Z" periodStart="2014-07-10T22:00:00.000Z" quantity="2000000"/>
    <AtcData periodEnd="2014-07-11T00:00:00.000Z" periodStart="2014-07-10T23:00:00.000Z" quantity="2000000"/>
    <AtcData periodEnd="2014-07-11T22:00:00.000Z" periodStart="2014-07-11T21:00:00.000Z" quantity="2000000"/>
  </AtcDataList>
</AtcDataResp>""",
        AtcDataResp(
            True,
            lists=(
                AtcDataList(
                    "DE-DK",
                    at("2014-07-10T22:00Z"),
                    "10YDK-1--------W",
                    "10YDE-EON------1",
                    (
                        AtcData(at("2014-07-10T22:00Z"), at("2014-07-10T23:00Z"), 2000000),
                        AtcData(at("2014-07-10T23:00Z"), at("2014-07-11T00:00Z"), 2000000),
                        AtcData(at("2014-07-11T21:00Z"), at("2014-07-11T22:00Z"), 2000000),
                    ),
                ),
            ),
        ),
    ),
    "allocation data response": (
        """<AllocationDataResp message="OK" success="true">
  <AllocationDataList balancingGroup="DBS-TESTTRADER-3" inArea="10YFR-RTE------C" outArea="10YDE-RWENET---I">
    <AllocationData activityType="ALLOCATION" allocationId="302573" periodEnd="2014-07-11T16:00:00.000Z"
    periodStart="2014-07-11T15:00:00.000Z" quantity="1000" time="2014-07-10T12:02:58.789Z"/>
    <AllocationData activityType="ALLOCATION" allocationId="302574" periodEnd="2014-07-11T16:00:00.000Z"
    periodStart="2014-07-11T15:00:00.000Z" quantity="1000" time="2014-07-10T12:03:08.100Z"/>
  </AllocationDataList>
</AllocationDataResp>""",
        AllocationDataResp(
            True,
            "OK",
            (
                AllocationDataList(
                    "DBS-TESTTRADER-3",
                    "10YFR-RTE------C",
                    "10YDE-RWENET---I",
                    tuple(
                        AllocationData(
                            "ALLOCATION",
                            number,
                            at("2014-07-11T15:00Z"),
                            at("2014-07-11T16:00Z"),
                            1000,
                            at(time),
                        )
                        for number, time in (
                            ("302573", "2014-07-10T12:02:58.789Z"),
                            ("302574", "2014-07-10T12:03:08.100Z"),
                        )
                    ),
                ),
            ),
        ),
    ),
    "error": ('<ErrorResp message="Unknown format."/>', ErrorResp("Unknown format.")),
    "atc notification": (
        """<AtcDataNtf>
  <AtcDataList date="2014-07-10T22:00:00.000Z" inArea="10YFR-RTE------C" outArea="10YDE-RWENET---I"
border="DE-FR">
    <AtcData periodStart="2014-07-11T15:00:00.000Z" periodEnd="2014-07-11T16:00:00.000Z" quantity="9998000"/>
  </AtcDataList>
</AtcDataNtf>""",
        AtcDataNtf(
            (
                AtcDataList(
                    "DE-FR",
                    at("2014-07-10T22:00Z"),
                    "10YFR-RTE------C",
                    "10YDE-RWENET---I",
                    (AtcData(at("2014-07-11T15:00Z"), at("2014-07-11T16:00Z"), 9998000),),
                ),
            )
        ),
    ),
    "allocation notification": (
        """<AllocationDataNtf>
  <AllocationDataList balancingGroup="DBS-TESTTRADER-3" inArea="10YFR-RTE------C" outArea="10YDE-RWENET---I">
    <AllocationData allocationId="302574" time="2014-07-10T12:03:08.100Z" activityType="ALLOCATION"
periodStart="2014-07-11T15:00:00.000Z"
periodEnd="2014-07-11T16:00:00.000Z" quantity="1000"/>
  </AllocationDataList>
</AllocationDataNtf>""",
        AllocationDataNtf(
            (
                AllocationDataList(
                    "DBS-TESTTRADER-3",
                    "10YFR-RTE------C",
                    "10YDE-RWENET---I",
                    (
                        AllocationData(
                            "ALLOCATION",
                            "302574",
                            at("2014-07-11T15:00Z"),
                            at("2014-07-11T16:00Z"),
                            1000,
                            at("2014-07-10T12:03:08.100Z"),
                        ),
                    ),
                ),
            )
        ),
    ),
}

OFFSET = "+02:00"


def canonical(text: bytes) -> bytes:
    """Without the blanks between elements, and with attributes in one order."""
    root = etree.fromstring(text, etree.XMLParser(remove_blank_text=True))
    return etree.tostring(root, method="c14n")


@pytest.mark.req("cmm-5.1.1-b")
@pytest.mark.req("cmm-2-a")
@pytest.mark.req("cmm-5.2.1-b", component="client")
@pytest.mark.req("cmm-5.2.2-e", component="client")
@pytest.mark.req("cmm-5.2.2-f", component="client")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_document_means_what_it_says_and_is_written_as_printed(name):
    text, message = EXAMPLES[name]
    assert decode(text.encode()) == message
    if OFFSET not in text:
        assert canonical(encode(message)) == canonical(text.encode())
    # The schema goes with the package.
    xsd = files("gridpost.wire.schemas").joinpath("cmm-explicit.xsd").read_bytes()
    assert etree.XMLSchema(etree.fromstring(xsd)).validate(etree.fromstring(encode(message)))


@pytest.mark.req("cmm-5.2.4-c")
def test_times_with_an_offset_are_read_as_instants_and_written_in_utc():
    text, message = EXAMPLES["allocation data request"]
    assert decode(text.encode()) == decode(encode(message))
    assert b'from="2014-06-08T22:00:00.000Z"' in encode(message)


@pytest.mark.req("cmm-5.3.3-c")
def test_the_unclosed_form_of_the_printed_atc_response_is_neither_read_nor_written():
    from gridpost.core.refusal import Refusal

    text, message = EXAMPLES["atc response"]
    with pytest.raises(Refusal):
        decode(text.replace('"/>', '">').encode())
    root = etree.fromstring(encode(message))
    assert all(len(item) == 0 and not item.text for item in root.iter("AtcData"))
