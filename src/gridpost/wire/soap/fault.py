"""SOAP faults: what is said in each version when a request is not answered, and with which HTTP status."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.soap.version import SOAP_11, SOAP_12, SoapVersion
from gridpost.wire.xml_text import attribute, escape, safe


class FaultCode(Enum):
    """Value: its name in SOAP 1.1, in SOAP 1.2, and the HTTP status of SOAP 1.2 part 2 Table 20."""

    VERSION_MISMATCH = ("VersionMismatch", "VersionMismatch", 500)
    MUST_UNDERSTAND = ("MustUnderstand", "MustUnderstand", 500)
    SENDER = ("Client", "Sender", 400)
    RECEIVER = ("Server", "Receiver", 500)


@dataclass(frozen=True, slots=True)
class Fault:
    code: FaultCode
    reason: str
    detail: str = ""
    """XML that an interface defines."""
    not_understood: tuple[tuple[str, str], ...] = ()
    """Namespace and local name of header blocks (SOAP 1.2 part 1 cl. 5.4.8)."""

    def status(self, version: SoapVersion) -> int:
        """SOAP 1.1 cl. 6.2 knows 500 only."""
        return 500 if version is SOAP_11 else self.code.value[2]


class SoapError(Refusal):
    """A request that SOAP itself refuses, whatever the interface."""

    def __init__(
        self, code: FaultCode, message: str, not_understood: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(Rule.SOAP_FORM, message)
        self.fault_code = code
        self.not_understood = not_understood


def render(version: SoapVersion, fault: Fault) -> str:
    # A reason may quote what a client sent; what XML cannot carry must not break the answer.
    reason = escape("reason", safe(fault.reason))
    name = fault.code.value[0 if version is SOAP_11 else 1]
    if version is SOAP_11:
        detail = f"<detail>{fault.detail}</detail>" if fault.detail else ""
        body = (
            f"<soap:Fault><faultcode>soap:{name}</faultcode>"
            f'<faultstring xml:lang="en">{reason}</faultstring>{detail}</soap:Fault>'
        )
    else:
        detail = f"<soap:Detail>{fault.detail}</soap:Detail>" if fault.detail else ""
        body = (
            f"<soap:Fault><soap:Code><soap:Value>soap:{name}</soap:Value></soap:Code>"
            f'<soap:Reason><soap:Text xml:lang="en">{reason}</soap:Text></soap:Reason>'
            f"{detail}</soap:Fault>"
        )
    head, tail = envelope_text(version, _headers(version, fault))
    return head + body + tail


def envelope_text(version: SoapVersion, headers: str = "") -> tuple[str, str]:
    """What stands before and after the content of the body."""
    header = f"<soap:Header>{headers}</soap:Header>" if headers else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<soap:Envelope xmlns:soap="{version.namespace}">{header}<soap:Body>',
        "</soap:Body></soap:Envelope>",
    )


def _headers(version: SoapVersion, fault: Fault) -> str:
    if fault.code is FaultCode.VERSION_MISMATCH and version is SOAP_12:
        # SOAP 1.2 part 1 cl. 5.4.7: what we would have understood.
        return (
            "<soap:Upgrade>"
            '<soap:SupportedEnvelope qname="soap:Envelope"/>'
            f'<soap:SupportedEnvelope xmlns:old="{SOAP_11.namespace}" qname="old:Envelope"/>'
            "</soap:Upgrade>"
        )
    if version is SOAP_12:
        return "".join(
            f"<soap:NotUnderstood{attribute('qname', 'h:' + name)}"
            f"{attribute('xmlns:h', namespace)}/>"
            if namespace
            else f"<soap:NotUnderstood{attribute('qname', name)}/>"
            for namespace, name in fault.not_understood
        )
    return ""
