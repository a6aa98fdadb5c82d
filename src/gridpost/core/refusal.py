"""The one domain error, and the one catalogue of rules whose breach leads to it.

A rule says where it stands, which standard error code answers it, whose fault a breach is and
whether trying again can help. Edges (SOAP, HTTP, AMQP, command line) render a refusal; they never
decide anything from its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum
from uuid import uuid4


class Code(StrEnum):
    """Error codes that applications and peers see (503 Table 41, MADES 1.1 Table 15)."""

    INVALID_PARAMETERS = "INVALID_PARAMETERS"
    AUTHENTICATION_ERROR = "AUTHENTICATION_ERROR"
    VALIDATION_ERROR = "VALIDATION_ERROR"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    CONCURRENT_ERROR = "CONCURRENT_ERROR"


class Fault(StrEnum):
    """Who has to act before the same thing can succeed."""

    APPLICATION = "application"
    PEER = "peer"
    OPERATOR = "operator"
    OURSELVES = "ourselves"


@dataclass(frozen=True, slots=True)
class RuleText:
    """What the catalogue knows of a rule."""

    clause: str
    code: Code
    fault: Fault
    retryable: bool = False


def _application(clause: str, code: Code = Code.VALIDATION_ERROR) -> RuleText:
    return RuleText(clause, code, Fault.APPLICATION)


def _peer(clause: str, code: Code = Code.VALIDATION_ERROR) -> RuleText:
    return RuleText(clause, code, Fault.PEER)


def _operator(
    clause: str, code: Code = Code.VALIDATION_ERROR, *, retryable: bool = False
) -> RuleText:
    return RuleText(clause, code, Fault.OPERATOR, retryable)


class Rule(Enum):
    """Every rule that can be broken. The member's name is the stable machine-readable reason."""

    # -- what an application or administrator hands in
    BAD_COMPONENT_CODE = _application("503 cl. 5.1", Code.INVALID_PARAMETERS)
    BAD_MESSAGE_TYPE = _application("503 cl. 5.2", Code.INVALID_PARAMETERS)
    BAD_MESSAGE_TYPE_PATTERN = _application("503 Table 21", Code.INVALID_PARAMETERS)
    BAD_MESSAGE_ID = _application("503 cl. 5.1", Code.INVALID_PARAMETERS)
    BAD_APPLICATION_ID = _application("503 Table 29", Code.INVALID_PARAMETERS)
    BAD_PATH = _application("503 Table 21", Code.INVALID_PARAMETERS)
    BAD_DATE_TIME = _application("503 cl. 6.5.5", Code.INVALID_PARAMETERS)
    BAD_BASE64 = _application("503 Table 29", Code.INVALID_PARAMETERS)
    EMPTY_CONTENT = _application("503 Table 29", Code.INVALID_PARAMETERS)
    CONTENT_TOO_LARGE = _application("503 cl. 6.3")
    BAD_FILE_NAME = _application("503 cl. 11.2.2", Code.INVALID_PARAMETERS)
    BAD_PROPERTY = _application("AMQP application channel", Code.INVALID_PARAMETERS)
    NOT_A_FILE = _application("503 cl. 11.2.2", Code.INVALID_PARAMETERS)
    CONVERSATION_REUSED = _application("503 cl. 11.1.2")
    SOAP_FORM = _application("503 cl. 11.1.7", Code.INVALID_PARAMETERS)
    MESSAGE_UNKNOWN = _application("503 cl. 5.6.1")
    NOT_WAITING = _application("503 cl. 11.1.4")
    MESSAGE_EXPIRED = _application("503 cl. 5.7")
    NOT_CANCELLABLE = _application("503 cl. 5.6")
    NOT_FAILED = _application("503 cl. 5.6")
    NOT_HELD_BACK = _application("gridpost hooks")
    RESENT_ALREADY = _application("gridpost operating")
    DOCUMENT_REFUSED = _application("gridpost hooks")

    # -- message path search and acceptance (503 cl. 5.3 to 5.5)
    RECIPIENT_UNKNOWN = _application("503 cl. 5.5")
    RECIPIENT_NOT_ENDPOINT = _application("503 cl. 5.1")
    NO_ENCRYPTION_CERTIFICATE = _application("503 cl. 5.5")
    NO_PATH_MATCHES = _application("503 cl. 5.3 step 1")
    PATHS_OVERLAP = _application("503 cl. 5.3 step 4")
    SENDER_NOT_ALLOWED_ON_PATH = _application("503 cl. 5.3 step 4")
    SENDER_TAKES_NO_CONNECTIONS = _application("503 cl. 5.3 step 4")
    BROKER_UNKNOWN = _application("503 cl. 5.5")
    BROKER_REFUSES_SENDER = _application("503 cl. 5.5")
    BROKER_REFUSES_RECIPIENT = _application("503 cl. 5.5")
    BROKER_REFUSES_MESSAGE_TYPE = _application("503 cl. 5.5")
    NO_SIGNING_CERTIFICATE = _operator("503 cl. 8.3.3", Code.INTERNAL_ERROR)
    DIRECTORY_DATA_LAPSED = _operator("503 cl. 7.7.1", Code.INTERNAL_ERROR, retryable=True)

    # -- versions (503 cl. 9, MADES 1.1 Table 13)
    VERSION_UNKNOWN = _application("MADES 1.1 Table 13")
    VERSIONS_TOO_FAR_APART = _application("MADES 1.1 Table 13")
    RECIPIENT_NODE_VERSION = _application("MADES 1.1 Table 13")
    SENDER_NODE_VERSION = _application("MADES 1.1 Table 13")
    BUSINESS_TYPE_VERSION = _application("MADES 1.1 Table 13")
    MESSAGE_VERSION_UNSUPPORTED = _peer("503 cl. 9.2")

    # -- Table 4: what a client may do on a broker or on an endpoint that takes direct transfers
    PEER_UNKNOWN = _peer("503 Table 4", Code.AUTHENTICATION_ERROR)
    PEER_NOT_ENDPOINT = _peer("503 Table 4", Code.AUTHENTICATION_ERROR)
    PEER_NOT_ALLOWED = _peer("503 cl. 5.4", Code.AUTHENTICATION_ERROR)
    NO_DIRECT_CONNECTIONS = _peer("503 Table 4", Code.AUTHENTICATION_ERROR)
    CONSUMER_NOT_OWN_QUEUE = _peer("503 Table 4", Code.AUTHENTICATION_ERROR)
    CONSUMER_ON_ENDPOINT = _peer("503 Table 4", Code.AUTHENTICATION_ERROR)
    QUEUE_UNKNOWN = _peer("503 Table 4")
    QUEUE_NOT_ALLOWED = _peer("503 Table 4", Code.AUTHENTICATION_ERROR)
    RECEIVER_NOT_QUEUE = _peer("503 Table 4")
    SENDER_NOT_CONNECTED_PEER = _peer("503 Table 4", Code.AUTHENTICATION_ERROR)
    MESSAGE_TYPE_NOT_ALLOWED = _peer("503 cl. 5.4")

    # -- AMQP 1.0 itself, as a client uses it on a server (503 cl. 6.1 to 6.3)
    AMQP_PROTOCOL = _peer("AMQP 2.4")
    LINK_UNNAMED = _peer("AMQP 2.6.3")
    TRANSFER_LIMIT = _peer("AMQP 2.6.7")
    NOT_OFFERED = _peer("AMQP 2.8.15")
    TRANSACTION_UNKNOWN = _peer("AMQP 4.5.8")
    TRANSACTION_ROLLED_BACK = _peer("AMQP 4.5.8")

    # -- what arrives on the wire (503 cl. 6.5)
    MALFORMED_XML = _peer("503 cl. 6.5.5")
    FORBIDDEN_XML = _peer("503 cl. 6.5.5")
    SCHEMA_INVALID = _peer("503 cl. 6.5.5")
    MALFORMED_AMQP = _peer("503 cl. 6.5.2")
    FIELD_MISSING = _peer("503 cl. 6.5.2")
    FIELD_TYPE = _peer("503 cl. 6.5.2")
    FIELDS_DISAGREE = _peer("503 cl. 6.5.1")
    LIMIT_EXCEEDED = _peer("503 cl. 6.3")
    BAD_VALUE = _peer("503 Table 17")

    # -- the seal (503 cl. 6.5.3, 6.5.4); each numbered step has its own rule
    SEAL_SIGNATURE_MISSING = _peer("503 cl. 6.5.4")
    SEAL_ENCRYPTION_MISSING = _peer("503 cl. 6.5.3")
    SEAL_PROCESSOR_REPEATED = _peer("503 Table 14")
    SEAL_PROCESSOR_UNKNOWN = _peer("503 Table 14")
    SEAL_PROCESSOR_NOT_ALLOWED = _peer("503 cl. 5.6.2")
    SEAL_ENTRY_MISSING = _peer("503 Tables 9, 10")
    SEAL_ALGORITHM_UNKNOWN = _peer("503 cl. 9.3")
    SEAL_PROFILE_NOT_ALLOWED = _peer("503 cl. 6.5.3")
    SEAL_NOT_OUR_CERTIFICATE = _peer("503 cl. 6.5.3 step 1")
    SEAL_ENCRYPTION_CERTIFICATE_EXPIRED = _peer("503 cl. 6.5.3 step 2")
    SEAL_SESSION_KEY = _peer("503 cl. 6.5.3 step 3")
    SEAL_CONTENT = _peer("503 cl. 6.5.3 step 4")
    SEAL_NOT_SENDERS_CERTIFICATE = _peer("503 cl. 6.5.4 step 1")
    SEAL_SIGNING_CERTIFICATE_EXPIRED = _peer("503 cl. 6.5.4 step 2")
    SEAL_SIGNATURE_FORM = _peer("503 cl. 6.5.6")
    SEAL_FINGERPRINT = _peer("503 cl. 6.5.4 step 5")
    SEAL_SIGNATURE_VALUE = _peer("503 cl. 6.5.4 step 4")

    # -- acknowledgements
    ACKNOWLEDGEMENT_FORM = _peer("503 Table 1")
    ACKNOWLEDGEMENT_WRONG_PARTY = _peer("503 cl. 5.6.2", Code.AUTHENTICATION_ERROR)
    ACKNOWLEDGEMENT_WRONG_ROUTE = _peer("503 cl. 5.6.2")
    ACKNOWLEDGEMENT_UNVERIFIED = _peer("503 cl. 4.5.4 check 2", Code.AUTHENTICATION_ERROR)

    # -- certificates and keys (503 cl. 8)
    BAD_CERTIFICATE = _peer("503 cl. 8.2", Code.AUTHENTICATION_ERROR)
    CHAIN_NOT_TRUSTED = _peer("503 cl. 8.4.1", Code.AUTHENTICATION_ERROR)
    CERTIFICATE_EXPIRED = _peer("503 cl. 8.3.2", Code.AUTHENTICATION_ERROR)
    CERTIFICATE_NOT_OF_COMPONENT = _peer("503 cl. 8.3.2", Code.AUTHENTICATION_ERROR)
    TLS_HANDSHAKE = _peer("503 cl. 8.4.1", Code.AUTHENTICATION_ERROR)
    BAD_KEY = _operator("503 cl. 8.2")
    KEY_PROTECTION = _operator("503 cl. 8.2")
    KEY_TOKEN = _operator("503 cl. 8.2")

    # -- configuration data (503 cl. 7.3)
    INCONSISTENT_CONFIGURATION = _operator("503 cl. 7.3.1")
    DUPLICATE_CODE = _peer("503 cl. 7.3.2")

    # -- the component-directory (503 cl. 7.5, 7.6)
    REGISTRATION_KEYS = _peer("503 cl. 7.6", Code.INVALID_PARAMETERS)
    REGISTRATION_CODE_TAKEN = _peer("503 cl. 7.6")
    REGISTRATION_UNKNOWN = _peer("503 cl. 7.6")
    REGISTRATION_DECIDED = _operator("503 cl. 7.6")
    REGISTRATION_REPEATED = _peer("503 Table 24")
    INSTALLATION_CERTIFICATE = _peer("503 cl. 7.6", Code.AUTHENTICATION_ERROR)
    CERTIFICATE_REVOKED = _peer("503 cl. 8.6", Code.AUTHENTICATION_ERROR)
    KEY_ALREADY_CERTIFIED = _peer("503 cl. 8.2")
    ACCESS_DENIED = _peer("503 Table 25", Code.AUTHENTICATION_ERROR)
    RESOURCE_UNKNOWN = _peer("503 Table 24")
    MEDIA_TYPE = _peer("503 Table 24", Code.INVALID_PARAMETERS)
    METHOD_NOT_ALLOWED = _peer("503 Table 23", Code.INVALID_PARAMETERS)
    COMPONENT_UNKNOWN = _operator("503 cl. 8.6")
    NOT_OUR_SUBSYSTEM = _operator("503 cl. 8.6")
    REFUSED_BY_DIRECTORY = _operator("503 Table 24")
    ENROLMENT_RUNNING = _operator("503 cl. 7.6")
    NOT_ENROLLED = _operator("503 cl. 7.6")
    UNREACHABLE = RuleText("503 cl. 10", Code.INTERNAL_ERROR, Fault.PEER, retryable=True)

    # -- the node of MADES 1.1
    TOKEN_UNKNOWN = _peer("MADES 1.1 cl. 3.5.3", Code.AUTHENTICATION_ERROR)
    TOKEN_SIGNATURE = _peer("MADES 1.1 cl. 3.5.3", Code.AUTHENTICATION_ERROR)
    TRANSFER_UNDER_WAY = RuleText(
        "MADES 1.1 cl. 3.5.4", Code.CONCURRENT_ERROR, Fault.PEER, retryable=True
    )
    ENDPOINT_VERSION = _peer("MADES 1.1 cl. 4.2.1", Code.AUTHENTICATION_ERROR)

    # -- the capacity management module and its public message interface
    BAD_EIC = _operator("EIC reference manual")
    REFERENCE_DATA = _operator("CMM 2.3")
    BAD_CAPACITY = _operator("CMM 5.3.3")
    AREA_UNKNOWN = _peer("CMM 5.2.2")
    LOGIN_FILTER = _peer("CMM 3.1.2.1")
    NOT_LOGGED_IN = _peer("CMM 3.2")
    ROLE_MISSING = _peer("CMM 2.3", Code.AUTHENTICATION_ERROR)
    GROUP_NOT_OWN = _peer("CMM 5.2", Code.AUTHENTICATION_ERROR)
    BORDER_NOT_GRANTED = _peer("CMM 2.3", Code.AUTHENTICATION_ERROR)
    TOO_MANY_ITEMS = _peer("CMM 3.2.1.1.1")
    TOO_MANY_DAYS = _peer("CMM 3.2.1.2")
    NOT_PUBLISHED = _peer("CMM 5.3.3")
    RESPONSE_UNROUTABLE = _peer("CMM 3.2.2")
    REQUEST_RETURNED = RuleText("CMM 3.2.2.2", Code.INTERNAL_ERROR, Fault.PEER, retryable=True)
    OUTCOME_UNKNOWN = RuleText("CMM 3.2.4", Code.INTERNAL_ERROR, Fault.PEER, retryable=True)
    REQUEST_REFUSED = _application("CMM 5.3.5")

    # -- ourselves
    STORE_TOO_NEW = _operator("gridpost store", Code.INTERNAL_ERROR)
    STORE_IN_USE = _operator("gridpost store", Code.INTERNAL_ERROR, retryable=True)
    STORE_OF_ANOTHER = _operator("gridpost store", Code.INTERNAL_ERROR)
    STORE_DAMAGED = _operator("gridpost store", Code.INTERNAL_ERROR)
    STORE_FULL = _operator("gridpost store", Code.INTERNAL_ERROR, retryable=True)
    FOLDER_FAILED = _operator("503 cl. 11.2", Code.INTERNAL_ERROR, retryable=True)
    OWN_DEFECT = _operator("503 cl. 5.8", Code.INTERNAL_ERROR, retryable=True)
    STORE_UNSAFE = _operator("gridpost store", Code.INTERNAL_ERROR)
    STORE_ACCESS = _operator("gridpost store", Code.INTERNAL_ERROR)
    STORE_UNREACHABLE = _operator("gridpost store", Code.INTERNAL_ERROR, retryable=True)
    LEASE_LOST = RuleText("gridpost store", Code.CONCURRENT_ERROR, Fault.OURSELVES, retryable=True)
    QUEUE_IN_USE = _operator("gridpost store", retryable=True)
    QUEUE_NOT_EMPTY = _operator("gridpost store", retryable=True)

    # -- RabbitMQ, as its clients see it
    AMQP091_UNREACHABLE = RuleText(
        "AMQP 0-9-1", Code.INTERNAL_ERROR, Fault.OPERATOR, retryable=True
    )
    AMQP091_NOT_FOUND = _operator("AMQP 0-9-1 404")
    AMQP091_DENIED = _operator("AMQP 0-9-1 403")
    AMQP091_LOCKED = _operator("AMQP 0-9-1 405", retryable=True)
    AMQP091_FAILED = _operator("AMQP 0-9-1 406")
    AMQP091_UNROUTED = _operator("AMQP 0-9-1 312")
    AMQP091_NOT_CONFIRMED = _operator("AMQP 0-9-1 confirms", retryable=True)

    # -- the common message envelope and the bus
    ENVELOPE_FORM = _peer("61968-100 Annex A", Code.INVALID_PARAMETERS)
    ENVELOPE_VERB = _peer("61968-100 Table 1", Code.INVALID_PARAMETERS)
    ENVELOPE_NOUN = _peer("61968-100 cl. 7", Code.INVALID_PARAMETERS)
    ENVELOPE_PAYLOAD = _peer("61968-100 cl. 6.2.4", Code.INVALID_PARAMETERS)
    ENVELOPE_COMPRESSION = _peer("61968-100 cl. 6.4", Code.INVALID_PARAMETERS)
    ENVELOPE_REPLY_ADDRESS = _peer("61968-100 cl. 6.3.2", Code.INVALID_PARAMETERS)
    ENVELOPE_CONTEXT = _peer("61968-100 cl. 6.3.2")
    ENVELOPE_REVISION = _peer("61968-100 cl. 6.3.2")
    ENVELOPE_USER = _peer("61968-100 cl. 6.3.2", Code.AUTHENTICATION_ERROR)
    ENVELOPE_REPLAY = _peer("61968-100 cl. 6.3.2", Code.AUTHENTICATION_ERROR)
    ENVELOPE_STALE = _peer("61968-100 cl. 6.3.2", Code.AUTHENTICATION_ERROR)
    OPERATION_SET = _peer("61968-100 cl. 6.10", Code.INVALID_PARAMETERS)
    OPERATION_FAILED = _peer("61968-100 cl. 6.10")
    NOT_HANDLED = _peer("61968-100 cl. 6.7")
    OBJECT_UNKNOWN = _peer("61968-100 cl. 6.3.3")
    OBJECT_EXISTS = _peer("61968-100 Annex B")
    HANDLER_TIMEOUT = RuleText(
        "61968-100 cl. 6.14", Code.INTERNAL_ERROR, Fault.OPERATOR, retryable=True
    )
    REQUEST_EXPIRED = _peer("61968-100 cl. 6.14")
    NO_REPLY = RuleText("61968-100 cl. 5.2.2", Code.INTERNAL_ERROR, Fault.PEER, retryable=True)
    WEB_REFUSED = _peer("61968-100 cl. 5.2.2")
    NOT_EXPECTED = _peer("61968-100 cl. 6.9")
    BAD_SIGNATURE_OF_BODY = _peer("61968-100 cl. 9", Code.AUTHENTICATION_ERROR)
    ADAPTER = RuleText("61968-100 cl. 5.3.5", Code.INTERNAL_ERROR, Fault.OPERATOR, retryable=True)
    SCHEMA_CHANGE = _operator("61968-100 cl. 10")

    # -- our own process
    INTERNAL = RuleText("gridpost", Code.INTERNAL_ERROR, Fault.OURSELVES, retryable=True)
    BUSY = RuleText("gridpost", Code.CONCURRENT_ERROR, Fault.OURSELVES, retryable=True)
    STOPPING = RuleText("gridpost", Code.CONCURRENT_ERROR, Fault.OPERATOR, retryable=True)
    MAINTENANCE = RuleText(
        "gridpost operating", Code.CONCURRENT_ERROR, Fault.OPERATOR, retryable=True
    )
    PAUSED = RuleText("gridpost operating", Code.CONCURRENT_ERROR, Fault.OPERATOR, retryable=True)
    UNDER_WAY = RuleText(
        "gridpost operating", Code.CONCURRENT_ERROR, Fault.OURSELVES, retryable=True
    )
    CHECK_FAILED = _operator("gridpost hooks", Code.INTERNAL_ERROR, retryable=True)
    USAGE = _application("gridpost command line", Code.INVALID_PARAMETERS)

    # Members with the same text would be aliases of each other; the name makes each one its own.
    def __new__(cls, text: RuleText) -> Rule:
        member = object.__new__(cls)
        member._value_ = len(cls.__members__) + 1
        member.text = text
        return member

    text: RuleText

    @property
    def clause(self) -> str:
        return self.text.clause

    @property
    def code(self) -> Code:
        return self.text.code

    @property
    def fault(self) -> Fault:
        return self.text.fault

    @property
    def retryable(self) -> bool:
        return self.text.retryable


class Refusal(Exception):
    """Something was not done, for a reason that a person can act on.

    The id stands in the reply and in the log, so that the two can be joined.
    """

    def __init__(self, rule: Rule, message: str, details: str = "") -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.details = details
        self.id = str(uuid4())

    @property
    def code(self) -> Code:
        return self.rule.code

    @property
    def fault(self) -> Fault:
        return self.rule.fault

    @property
    def retryable(self) -> bool:
        return self.rule.retryable

    def __repr__(self) -> str:
        return f"Refusal({self.rule.name}, {self.message!r}, id={self.id})"
