"""Which HTTP status answers which refusal (503 Table 24), and how much of it the other side sees."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from gridpost.core.refusal import Fault, Refusal, Rule
from gridpost.services.operations import doorstep
from gridpost.wire.directory import MEDIA_TYPE, encode_error

# HTTP's own statuses where Table 24 names none: 405 and 413 (see divergences, http codes).
STATUS: Mapping[Rule, int] = {
    Rule.MALFORMED_XML: 400,
    Rule.FORBIDDEN_XML: 400,
    Rule.PEER_UNKNOWN: 401,
    Rule.CHAIN_NOT_TRUSTED: 401,
    Rule.CERTIFICATE_NOT_OF_COMPONENT: 401,
    Rule.CERTIFICATE_REVOKED: 401,
    Rule.DIRECTORY_DATA_LAPSED: 401,
    Rule.ACCESS_DENIED: 403,
    Rule.INSTALLATION_CERTIFICATE: 403,
    Rule.RESOURCE_UNKNOWN: 404,
    Rule.REGISTRATION_UNKNOWN: 404,
    Rule.COMPONENT_UNKNOWN: 404,
    Rule.METHOD_NOT_ALLOWED: 405,
    Rule.REGISTRATION_CODE_TAKEN: 409,
    Rule.REGISTRATION_DECIDED: 409,
    Rule.REGISTRATION_REPEATED: 409,
    Rule.KEY_ALREADY_CERTIFIED: 409,
    Rule.NOT_OUR_SUBSYSTEM: 409,
    Rule.LIMIT_EXCEEDED: 413,
    Rule.MEDIA_TYPE: 415,
    Rule.INCONSISTENT_CONFIGURATION: 422,
}

# What an operator should look at, because somebody tried what he may not do.
SECURITY = doorstep.SECURITY | {
    Rule.ACCESS_DENIED,
    Rule.INSTALLATION_CERTIFICATE,
    Rule.KEY_ALREADY_CERTIFIED,
}


def status_of(refusal: Refusal) -> int:
    """What is the peer's to mend and has no status of its own is a validation error."""
    known = STATUS.get(refusal.rule)
    if known is not None:
        return known
    return 422 if refusal.fault in (Fault.PEER, Fault.APPLICATION) else 500


def unauthenticated(refusal: Refusal) -> int:
    """While it is not known who is asking, every doubt about a certificate is a 401."""
    return 403 if refusal.rule is Rule.INSTALLATION_CERTIFICATE else 401


def presentable(refusal: Refusal) -> Refusal:
    """What happens inside stays inside: the other side gets the id to ask its administrator about."""
    if status_of(refusal) < 500:
        return refusal
    shown = Refusal(Rule.INTERNAL, "the component-directory could not process the request")
    shown.id = refusal.id
    return shown


def render(refusal: Refusal, status: int, headers: Mapping[str, str] | None = None) -> Response:
    body = encode_error(presentable(refusal) if status >= 500 else refusal)
    return Response(body, status, dict(headers or {}), MEDIA_TYPE)
