"""How a refusal reads in AMQP: one condition per rule, and the refusal's id in the description."""

from __future__ import annotations

from typing import Final

from gridpost.core.refusal import Code, Refusal, Rule

# AMQP 2.8.15
UNAUTHORIZED: Final = "amqp:unauthorized-access"
NOT_FOUND: Final = "amqp:not-found"
NOT_ALLOWED: Final = "amqp:not-allowed"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
INTERNAL_ERROR: Final = "amqp:internal-error"
DECODE_ERROR: Final = "amqp:decode-error"
INVALID_FIELD: Final = "amqp:invalid-field"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
RESOURCE_LOCKED: Final = "amqp:resource-locked"
RESOURCE_LIMIT: Final = "amqp:resource-limit-exceeded"
# AMQP 2.8.16 to 2.8.18
FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
MESSAGE_SIZE: Final = "amqp:link:message-size-exceeded"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
# AMQP 4.5.8
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"
ROLLED_BACK: Final = "amqp:transaction:rollback"

_OF_RULE: Final = {
    Rule.QUEUE_UNKNOWN: NOT_FOUND,
    Rule.MESSAGE_UNKNOWN: NOT_FOUND,
    Rule.CONSUMER_ON_ENDPOINT: NOT_ALLOWED,
    Rule.MESSAGE_TYPE_NOT_ALLOWED: NOT_ALLOWED,
    Rule.BROKER_REFUSES_MESSAGE_TYPE: NOT_ALLOWED,
    Rule.LINK_UNNAMED: NOT_ALLOWED,
    Rule.CONVERSATION_REUSED: NOT_ALLOWED,
    Rule.NOT_OFFERED: NOT_IMPLEMENTED,
    Rule.MESSAGE_VERSION_UNSUPPORTED: NOT_IMPLEMENTED,
    Rule.AMQP_PROTOCOL: FRAMING_ERROR,
    Rule.TRANSFER_LIMIT: TRANSFER_LIMIT,
    Rule.CONTENT_TOO_LARGE: MESSAGE_SIZE,
    Rule.TRANSACTION_UNKNOWN: UNKNOWN_TRANSACTION,
    Rule.TRANSACTION_ROLLED_BACK: ROLLED_BACK,
    Rule.MALFORMED_AMQP: DECODE_ERROR,
    Rule.MALFORMED_XML: DECODE_ERROR,
    Rule.FORBIDDEN_XML: DECODE_ERROR,
    Rule.SCHEMA_INVALID: DECODE_ERROR,
    Rule.LIMIT_EXCEEDED: RESOURCE_LIMIT,
    Rule.STORE_FULL: RESOURCE_LIMIT,
    Rule.AMQP091_NOT_CONFIRMED: RESOURCE_LIMIT,
    Rule.QUEUE_IN_USE: RESOURCE_LOCKED,
    Rule.BUSY: RESOURCE_LIMIT,
    # Clients connect again, to another address of the same broker where there is one.
    Rule.AMQP091_UNREACHABLE: FORCED,
    Rule.LEASE_LOST: FORCED,
    Rule.STORE_UNREACHABLE: FORCED,
    Rule.STOPPING: FORCED,
    Rule.DIRECTORY_DATA_LAPSED: PRECONDITION_FAILED,
}

# Rules without a line of their own, by what applications would be told.
_OF_CODE: Final = {
    Code.AUTHENTICATION_ERROR: UNAUTHORIZED,
    Code.INVALID_PARAMETERS: INVALID_FIELD,
    Code.VALIDATION_ERROR: INVALID_FIELD,
    Code.CONCURRENT_ERROR: RESOURCE_LIMIT,
    Code.INTERNAL_ERROR: INTERNAL_ERROR,
}


def render(refusal: Refusal) -> tuple[str, str]:
    """The AMQP condition, and a description that names the rule and the id that is in our log."""
    condition = _OF_RULE.get(refusal.rule) or _OF_CODE[refusal.code]
    return condition, f"{refusal.message} [{refusal.rule.name} {refusal.id}]"
