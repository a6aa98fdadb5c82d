"""Small pieces that all services of MADES 1.1 share: reading values, tokens, errors (Tables 14, 53, 60)."""

from __future__ import annotations

from dataclasses import dataclass

from lxml import etree

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades11.services import NAMESPACE
from gridpost.wire.xml_text import element, optional, safe

_NIL = "{http://www.w3.org/2001/XMLSchema-instance}nil"


def text(body: etree._Element, path: str) -> str:
    """Absent, nil and empty mean the same."""
    found = body.find(path)
    return "" if found is None or found.get(_NIL) in ("true", "1") else found.text or ""


def number(body: etree._Element, path: str) -> int | None:
    """xsd:int and xsd:long; the schema has seen that it is one."""
    found = text(body, path).strip()
    if not found:
        return None
    try:
        return int(found)
    except ValueError:
        raise Refusal(Rule.BAD_VALUE, f"{path} is no number: '{clip(found)}'") from None


def boolean(body: etree._Element, path: str) -> bool:
    return text(body, path).strip() in ("true", "1")


def required(body: etree._Element, path: str) -> str:
    found = text(body, path)
    if not found.strip():
        raise Refusal(Rule.FIELD_MISSING, f"{path} is empty")
    return found


def container(name: str, content: str) -> str:
    return f'<mades:{name} xmlns:mades="{NAMESPACE}">{content}</mades:{name}>'


@dataclass(frozen=True, slots=True)
class SignedText:
    """Tables 41, 53 and 60: a token or component ID, its SHA-1 with RSA signature, and by whom."""

    text: str
    signature: str
    certificate_id: str


def read_auth_token(body: etree._Element) -> SignedText:
    return SignedText(
        required(body, "authToken/token").strip(),
        required(body, "authToken/signature"),
        required(body, "authToken/certificateID"),
    )


def auth_token(token: SignedText) -> str:
    return (
        "<authToken>"
        + element("token", token.text)
        + element("signature", token.signature)
        + element("certificateID", token.certificate_id)
        + "</authToken>"
    )


@dataclass(frozen=True, slots=True)
class ServiceError:
    """Table 14."""

    code: str
    error_id: str
    message: str
    details: str = ""


def error_elements(found: ServiceError) -> str:
    return (
        element("errorCode", found.code)
        + element("errorID", found.error_id)
        + element("errorMessage", safe(found.message))
        + optional("errorDetails", safe(found.details))
    )


def error(operation: str, found: ServiceError) -> str:
    return container(f"{operation}Error", error_elements(found))


def read_error(body: etree._Element) -> ServiceError:
    return ServiceError(
        text(body, "errorCode"),
        text(body, "errorID"),
        text(body, "errorMessage"),
        text(body, "errorDetails"),
    )
