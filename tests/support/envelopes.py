"""The XML examples of IEC 61968-100, with what scanning broke put right, and values at random."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

from gridpost.envelope import (
    AnyMessage,
    Error,
    ErrorObject,
    EventMessage,
    FaultMessage,
    Fragment,
    Header,
    Identifier,
    IdKind,
    Instant,
    Level,
    Location,
    Message,
    Name,
    NameType,
    NameTypeAuthority,
    Operation,
    OperationSet,
    Pair,
    Payload,
    ReplayDetection,
    Reply,
    Request,
    RequestMessage,
    ResponseMessage,
    Result,
    User,
    Verb,
)

MESSAGE = "http://iec.ch/TC57/2011/schema/message"
WWW = "http://www.iec.ch/TC57/2011/schema/message"
CORRELATION = "1729363b5b7d9c6a0a88d02ae97c64b0"
SWITCH_IDS = (
    "b9cd8d2a-56a2-45e3-89d0-caaabb9e2985",
    "e6d957ba-792a-4fcf-9f33-fd176a66dee8",
    "567fdc86-0ccd-4a96-a318-bdc1a3015643",
)

ALL_HEADER_FIELDS = f"""<?xml version="1.0" encoding="UTF-8"?>
<RequestMessage xsi:schemaLocation="{MESSAGE} Message.xsd" xmlns="{MESSAGE}"
    xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <Header>
    <Verb>get</Verb>
    <Noun>LoadForecast</Noun>
    <Revision>1</Revision>
    <ReplayDetection>
      <Nonce>dcd98b7102dd2f0e8b11d0f600bfb0c093</Nonce>
      <Created>2012-12-16T09:30:47.0Z</Created>
    </ReplayDetection>
    <Context>PRODUCTION</Context>
    <Timestamp>2001-12-16T09:30:47.0Z</Timestamp>
    <Source>EMS</Source>
    <AsyncReplyFlag>false</AsyncReplyFlag>
    <ReplyAddress>queue:EMS.ReplyQueue</ReplyAddress>
    <AckRequired>true</AckRequired>
    <User>
      <UserID>Bob</UserID>
      <Organization>Scheduling</Organization>
    </User>
    <MessageID>3432626</MessageID>
    <CorrelationID>3432626</CorrelationID>
    <Comment>Example message</Comment>
    <Property>
      <Name>timeout</Name>
      <Value>10</Value>
    </Property>
  </Header>
  <Request>
    <StartTime>2012-12-17T00:00:00.0Z</StartTime>
    <EndTime>2012-12-17T24:00:00.0Z</EndTime>
  </Request>
</RequestMessage>"""


def _switches(*switches: tuple[str, str]) -> str:
    inner = "".join(
        f"<m:Switch><m:mRID>{mrid}</m:mRID><m:normalOpen>{state}</m:normalOpen></m:Switch>"
        for mrid, state in switches
    )
    return (
        '<m:Switches xsi:schemaLocation="http://iec.ch/TC57/2012/Switches# Switches.xsd" '
        'xmlns:m="http://iec.ch/TC57/2012/Switches#" '
        f'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">{inner}</m:Switches>'
    )


def _message(kind: str, verb: str, body: str, extra: str = "") -> str:
    return f"""<ns0:{kind} xmlns:ns0 = "{WWW}">
<ns0:Header>
  <ns0:Verb>{verb}</ns0:Verb>
  <ns0:Noun>Switches</ns0:Noun>
  {extra}
</ns0:Header>
{body}
</ns0:{kind}>"""


_LINK = f"<ns0:CorrelationID>{CORRELATION}</ns0:CorrelationID>"
_REVISION = "<ns0:Revision>1</ns0:Revision>"
FIGURE_24 = _message(
    "RequestMessage",
    "get",
    "<ns0:Request>" + "".join(f"<ns0:ID>{i}</ns0:ID>" for i in SWITCH_IDS) + "</ns0:Request>",
    _REVISION + _LINK,
)
FIGURE_29 = _message(
    "ResponseMessage",
    "reply",
    "<ns0:Reply><ns0:Result>OK</ns0:Result></ns0:Reply><ns0:Payload>"
    + _switches((SWITCH_IDS[0], "true"), (SWITCH_IDS[1], "true"), (SWITCH_IDS[2], "false"))
    + "</ns0:Payload>",
    _LINK,
)
FIGURE_30 = _message(
    "ResponseMessage",
    "reply",
    "<ns0:Reply><ns0:Result>OK</ns0:Result></ns0:Reply><ns0:Payload>"
    "<ns0:Compressed>dghuywqeiwihn353218u23hb2b3b3bhu</ns0:Compressed>"
    "<ns0:Format>XML</ns0:Format></ns0:Payload>",
    _LINK,
)
FIGURE_31 = _message(
    "ResponseMessage",
    "reply",
    "<ns0:Reply><ns0:Result>FAILED</ns0:Result><ns0:Error><ns0:code>2.15</ns0:code>"
    f"<ns0:level>WARNING</ns0:level><ns0:details>Unknown object: {SWITCH_IDS[1]}</ns0:details>"
    "</ns0:Error></ns0:Reply><ns0:Payload>"
    + _switches((SWITCH_IDS[0], "true"), (SWITCH_IDS[2], "false"))
    + "</ns0:Payload>",
    _REVISION + _LINK,
)
FIGURE_33 = _message(
    "EventMessage",
    "changed",
    "<ns0:Payload>"
    + _switches((SWITCH_IDS[0], "false"), (SWITCH_IDS[2], "true"))
    + "</ns0:Payload>",
    _REVISION,
)


def _names(prefix: str, name: str, kind: str) -> str:
    p = prefix
    return (
        f"<{p}:Names><{p}:name>{name}</{p}:name><{p}:NameType><{p}:name>{kind}</{p}:name>"
        f"<{p}:NameTypeAuthority><{p}:name>UtilityXYZ</{p}:name></{p}:NameTypeAuthority>"
        f"</{p}:NameType></{p}:Names>"
    )


def _times(prefix: str, name: str, day: int) -> str:
    p = prefix
    return (
        f"<{p}:{name}><{p}:createdDateTime>2012-12-{day}T09:30:47Z</{p}:createdDateTime>"
        f"<{p}:effectiveDateTime>2012-12-21T00:00:00Z</{p}:effectiveDateTime></{p}:{name}>"
    )


OPERATION_SET = f"""<?xml version="1.0" encoding="UTF-8"?>
<RequestMessage xmlns="{MESSAGE}" xmlns:m="http://iec.ch/TC57/2011/MeterConfig#"
  xmlns:up="http://iec.ch/TC57/2011/UsagePointConfig#"
  xmlns:mdlc="http://iec.ch/TC57/2011/MasterDataLinkageConfig#"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
  xsi:schemaLocation="{MESSAGE} Message.xsd">
  <Header>
    <Verb>execute</Verb>
    <Noun>OperationSet</Noun>
    <Revision>2.0</Revision>
    <Timestamp>2012-12-20T09:30:47Z</Timestamp>
    <Source>CIS</Source>
    <AckRequired>true</AckRequired>
    <MessageID>D921A053-80C1-4DB6-960E-2603127B7B92</MessageID>
    <CorrelationID>D921A053-80C1-4DB6-960E-2603127B7B92</CorrelationID>
  </Header>
  <Payload>
    <OperationSet>
      <enforceMsgSequence>true</enforceMsgSequence>
      <enforceTransactionalIntegrity>true</enforceTransactionalIntegrity>
      <Operation>
        <operationId>1</operationId>
        <noun>MeterConfig</noun>
        <verb>create</verb>
        <m:MeterConfig><m:Meter><m:formNumber>2S</m:formNumber>
          {_times("m", "ConfigurationEvents", 20)}{_names("m", "C34531", "MeterBadgeNumber")}
        </m:Meter></m:MeterConfig>
      </Operation>
      <Operation>
        <operationId>2</operationId>
        <noun>UsagePointConfig</noun>
        <verb>create</verb>
        <up:UsagePointConfig><up:UsagePoint>
          <up:amiBillingReady>amiCapable</up:amiBillingReady>
          <up:connectionState>connected</up:connectionState>
          <up:isSdp>true</up:isSdp><up:isVirtual>false</up:isVirtual>
          <up:phaseCode>B</up:phaseCode><up:readCycle>ReadCycleJ</up:readCycle>
          {_times("up", "ConfigurationEvents", 20)}{_names("up", "UP43639", "ServiceDeliveryPointID")}
        </up:UsagePoint></up:UsagePointConfig>
      </Operation>
      <Operation>
        <operationId>3</operationId>
        <noun>MasterDataLinkageConfig</noun>
        <verb>create</verb>
        <mdlc:MasterDataLinkageConfig>{_times("mdlc", "ConfigurationEvent", 17)}
          <mdlc:Meter>{_names("mdlc", "C34531", "MeterBadgeNumber")}</mdlc:Meter>
          <mdlc:UsagePoint>{_names("mdlc", "UP43639", "ServiceDeliveryPointID")}</mdlc:UsagePoint>
        </mdlc:MasterDataLinkageConfig>
      </Operation>
    </OperationSet>
  </Payload>
</RequestMessage>"""

FIGURE_49 = """<m:Switches xsi:schemaLocation="http://www.iec.ch/TC57/2011/CIM-schema-cim12# Switches.xsd"
 xmlns:m="http://www.iec.ch/TC57/2011/CIM-schema-cim12#"
 xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">
  <m:Switch><m:mRID>35378383838</m:mRID><m:name>SW1</m:name><m:normalOpen>true</m:normalOpen></m:Switch>
  <m:Switch><m:mRID>363482488448</m:mRID><m:name>SW2</m:name><m:normalOpen>true</m:normalOpen></m:Switch>
  <m:Switch><m:mRID>894094949444</m:mRID><m:name>SW3</m:name><m:normalOpen>false</m:normalOpen></m:Switch>
</m:Switches>"""

ANNEX_F = b"<root><name>raju</name></root>"

EXAMPLES = {
    "all header fields": ALL_HEADER_FIELDS,
    "figure 24": FIGURE_24,
    "figure 29": FIGURE_29,
    "figure 30": FIGURE_30,
    "figure 31": FIGURE_31,
    "figure 33": FIGURE_33,
    "6.10.4": OPERATION_SET,
}

# -- values at random

_TEXT = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff")
    | st.sampled_from("\t\n\r<>&'\"]"),
    max_size=12,
)
_MAYBE = st.none() | _TEXT
_TIMES = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)).map(
    Instant.of
)
_FLAGS = st.none() | st.booleans()
_NUMBERS = st.integers(-(10**12), 10**12)
_FRAGMENTS = st.builds(
    lambda name, text, prefixed: Fragment.parse(
        f'<p:{name} xmlns:p="urn:example:p"><p:value at="p:{name}">{text}</p:value></p:{name}>'
        if prefixed
        else f'<{name} xmlns="urn:example:other"><a>{text}</a><!-- kept --></{name}>'
    ),
    st.sampled_from(["Switches", "Custom", "GetSwitches"]),
    st.sampled_from(["", "a", " b ", "&lt;c&gt;", "ä€"]),
    st.booleans(),
)
_IDS = st.builds(Identifier, _TEXT, st.none() | st.sampled_from(IdKind), _MAYBE, _MAYBE, _MAYBE)


def _many(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(values, max_size=2).map(tuple)


_PAIRS = st.builds(Pair, _TEXT, _MAYBE)
_AUTHORITIES = st.builds(NameTypeAuthority, _TEXT, _MAYBE)
_NAMES = st.builds(
    Name, _TEXT, st.none() | st.builds(NameType, _TEXT, _MAYBE, st.none() | _AUTHORITIES)
)
_ERRORS = st.builds(
    Error,
    _TEXT,
    st.none() | st.sampled_from(Level),
    _MAYBE,
    _MAYBE,
    _MAYBE,
    _MAYBE,
    st.none() | st.builds(Location, _MAYBE, _MAYBE, _MAYBE),
    st.none() | _IDS,
    st.none() | _IDS,
    st.none() | st.builds(ErrorObject, _MAYBE, _many(_NAMES), _MAYBE),
    st.none() | _NUMBERS,
)
_OPERATIONS = st.builds(Operation, _NUMBERS, _MAYBE, _MAYBE, _FLAGS, st.none() | _FRAGMENTS)
_PAYLOADS = st.one_of(
    st.builds(Payload, content=_many(_FRAGMENTS), format=_MAYBE),
    st.builds(
        Payload,
        operation_set=st.builds(OperationSet, _many(_OPERATIONS), _FLAGS, _FLAGS),
        format=_MAYBE,
    ),
    st.builds(Payload, compressed=_TEXT, format=_MAYBE),
    st.builds(Payload, ids=_many(_IDS), format=_MAYBE),
)
_HEADERS = st.builds(
    Header,
    st.sampled_from(Verb),
    _TEXT,
    _MAYBE,
    st.none() | st.builds(ReplayDetection, _TEXT, _TIMES),
    _MAYBE,
    st.none() | _TIMES,
    _MAYBE,
    _FLAGS,
    _MAYBE,
    _FLAGS,
    st.none() | st.builds(User, _TEXT, _MAYBE),
    _MAYBE,
    _MAYBE,
    _MAYBE,
    _many(_PAIRS),
    _many(_FRAGMENTS),
)
_REQUESTS = st.builds(
    Request, st.none() | _TIMES, st.none() | _TIMES, _many(_PAIRS), _many(_IDS), _many(_FRAGMENTS)
)
_REPLIES = st.builds(
    Reply,
    st.sampled_from(Result),
    _many(_ERRORS),
    _many(_IDS),
    _many(_FRAGMENTS),
    st.none() | _NUMBERS,
)
ENVELOPES: st.SearchStrategy[AnyMessage] = st.one_of(
    st.builds(RequestMessage, _HEADERS, st.none() | _REQUESTS, st.none() | _PAYLOADS),
    st.builds(ResponseMessage, _HEADERS, _REPLIES, st.none() | _PAYLOADS),
    st.builds(EventMessage, _HEADERS, st.none() | _PAYLOADS),
    st.builds(FaultMessage, _REPLIES),
    st.builds(
        Message, _HEADERS, st.none() | _REQUESTS, st.none() | _REPLIES, st.none() | _PAYLOADS
    ),
)
