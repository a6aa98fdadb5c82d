"""The two versions of SOAP: how each is recognised and what each calls things."""

from __future__ import annotations

from dataclasses import dataclass
from email.message import Message

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule


@dataclass(frozen=True, slots=True)
class SoapVersion:
    name: str
    namespace: str
    media_type: str
    next_role: str
    """A header for everybody on the way, hence for us too."""

    def tag(self, local: str) -> str:
        return f"{{{self.namespace}}}{local}"

    @property
    def content_type(self) -> str:
        return f"{self.media_type}; charset=utf-8"


SOAP_11 = SoapVersion(
    "1.1",
    "http://schemas.xmlsoap.org/soap/envelope/",
    "text/xml",
    "http://schemas.xmlsoap.org/soap/actor/next",
)
SOAP_12 = SoapVersion(
    "1.2",
    "http://www.w3.org/2003/05/soap-envelope",
    "application/soap+xml",
    "http://www.w3.org/2003/05/soap-envelope/role/next",
)
VERSIONS = (SOAP_11, SOAP_12)

_CHARSETS = frozenset({"", "utf-8", "utf8", "utf-16"})


@dataclass(frozen=True, slots=True)
class MediaType:
    """What the HTTP headers of a request say: the version, and the action that it names, if any."""

    version: SoapVersion
    action: str = ""

    @classmethod
    def read(cls, content_type: str, soap_action: str | None) -> MediaType:
        """SOAP 1.1 cl. 6.1.1 has the action in a header, SOAP 1.2 part 2 cl. 7.1.4 in the media type."""
        parsed = parse_content_type(content_type)
        essence = parsed.get_content_type() if content_type.strip() else ""
        version = next((v for v in VERSIONS if v.media_type == essence), None)
        if version is None:
            raise Refusal(
                Rule.MEDIA_TYPE,
                f"'{clip(content_type)}' is no SOAP message: send text/xml (SOAP 1.1) or "
                "application/soap+xml (SOAP 1.2)",
            )
        charset = str(parsed.get_param("charset") or "").lower()
        if charset not in _CHARSETS:
            raise Refusal(Rule.MEDIA_TYPE, f"charset '{clip(charset)}' is not UTF-8 or UTF-16")
        if version is SOAP_12:
            return cls(version, str(parsed.get_param("action") or ""))
        return cls(version, (soap_action or "").strip().strip('"'))


def parse_content_type(text: str) -> Message:
    """A media type with parameters; the rules are those of MIME."""
    parsed = Message()
    parsed["content-type"] = text
    return parsed


def version_of(namespace: str) -> SoapVersion | None:
    return next((v for v in VERSIONS if v.namespace == namespace), None)
