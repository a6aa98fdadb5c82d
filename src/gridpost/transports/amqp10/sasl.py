"""The start of a connection: protocol headers and SASL (AMQP 2.2, 5.3), in both roles.

Proton offers EXTERNAL only when its own TLS has seen a certificate, PLAIN to servers only with the
Cyrus library, and ANONYMOUS otherwise; TLS ends in Python here. So these few frames are spoken by
us, and proton gets the octets after them. No I/O: octets in, octets and findings out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gridpost.core.refusal import Refusal
from gridpost.wire.amqp.codec import decode, encode_composite
from gridpost.wire.amqp.types import AmqpLimits, Array, Described, Symbol, UByte, Value

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

EXTERNAL: Final = "EXTERNAL"
PLAIN: Final = "PLAIN"

_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
_OK, _AUTH = 0, 1
_SASL_FRAME: Final = 1
# AMQP 5.3.1: frames before the outcome have at most 512 octets.
_MAX_FRAME: Final = 512
_VALUES: Final = AmqpLimits(max_depth=4, max_items=64)
_SYM8: Final = 0xA3


class Unwelcome(Exception):
    """The peer does not speak what we speak: write `answer`, then close."""

    def __init__(self, reason: str, answer: bytes = b"") -> None:
        super().__init__(reason)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client authenticates with. Without a name: EXTERNAL, by its certificate."""

    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"


@dataclass(frozen=True, slots=True)
class Init:
    """What the client asks for."""

    mechanism: str
    user: str = ""
    password: str = ""


class ServerSasl:
    """Takes the octets of a client until its AMQP header; what follows is left in `rest`."""

    def __init__(self, mechanisms: tuple[str, ...]) -> None:
        self._mechanisms = mechanisms
        self._step = self._header
        self.rest = bytearray()
        self.done = False

    def feed(self, octets: bytes | memoryview) -> tuple[bytes, Init | None]:
        """Octets to write, and what the client asks for once it has; then call `decide`."""
        self.rest += octets
        answer = b""
        while not self.done:
            step = self._step
            try:
                more, init = step()
            except Unwelcome as unwelcome:
                # A client that does not wait may have said several things at once.
                unwelcome.answer = answer + unwelcome.answer
                raise
            answer += more
            if init is not None or step == self._step:
                return answer, init
        return answer, None

    def decide(self, *, accepted: bool) -> bytes:
        self._step = self._amqp_header
        return _frame(encode_composite(_OUTCOME, [UByte(_OK if accepted else _AUTH)]))

    def _header(self) -> tuple[bytes, Init | None]:
        if len(self.rest) < len(SASL_HEADER):
            # A peer that speaks something else may never send eight octets.
            if not SASL_HEADER.startswith(self.rest[:4]):
                raise Unwelcome("this is not AMQP", SASL_HEADER)
            return b"", None
        if not self.rest.startswith(SASL_HEADER):
            # AMQP 2.2: answer with what we support, then close.
            raise Unwelcome(f"protocol header {bytes(self.rest[:8])!r}", SASL_HEADER)
        del self.rest[: len(SASL_HEADER)]
        self._step = self._init
        offered: list[Value] = [Symbol(name) for name in self._mechanisms]
        frame = _frame(encode_composite(_MECHANISMS, [Array(_SYM8, tuple(offered))]))
        return SASL_HEADER + frame, None

    def _init(self) -> tuple[bytes, Init | None]:
        body = _take_frame(self.rest)
        if body is None:
            return b"", None
        fields = _fields(body, _INIT)
        mechanism = fields[0] if fields else None
        if not isinstance(mechanism, Symbol) or mechanism not in self._mechanisms:
            raise Unwelcome("no mechanism that we offer", self.decide(accepted=False))
        response = fields[1] if len(fields) > 1 else None
        self._step = self._waiting
        if mechanism == EXTERNAL:
            # The certificate says who it is; an authorization identity is not looked at.
            return b"", Init(EXTERNAL)
        # RFC 4616: [authorization identity] NUL authentication identity NUL password
        parts = response.split(b"\0") if isinstance(response, bytes) else []
        if len(parts) != 3:
            raise Unwelcome("not a PLAIN response", self.decide(accepted=False))
        try:
            return b"", Init(PLAIN, parts[1].decode(), parts[2].decode())
        except UnicodeDecodeError:
            raise Unwelcome("PLAIN is not UTF-8", self.decide(accepted=False)) from None

    def _waiting(self) -> tuple[bytes, Init | None]:
        return b"", None

    def _amqp_header(self) -> tuple[bytes, Init | None]:
        if len(self.rest) < len(AMQP_HEADER):
            return b"", None
        if not self.rest.startswith(AMQP_HEADER):
            raise Unwelcome(f"protocol header {bytes(self.rest[:8])!r}", AMQP_HEADER)
        self.done = True
        return b"", None


class ClientSasl:
    """Speaks to a server until it accepts us; what follows is left in `rest`."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._step = self._header
        self.rest = bytearray()
        self.done = False

    def start(self) -> bytes:
        return SASL_HEADER

    def feed(self, octets: bytes | memoryview) -> bytes:
        self.rest += octets
        answer = b""
        while not self.done:
            step = self._step
            answer += step()
            if step == self._step:
                break
        return answer

    def _header(self) -> bytes:
        if len(self.rest) < len(SASL_HEADER):
            return b""
        if not self.rest.startswith(SASL_HEADER):
            raise Unwelcome(f"the server answers with {bytes(self.rest[:8])!r}")
        del self.rest[: len(SASL_HEADER)]
        self._step = self._mechanisms
        return b""

    def _mechanisms(self) -> bytes:
        body = _take_frame(self.rest)
        if body is None:
            return b""
        fields = _fields(body, _MECHANISMS)
        offered = fields[0] if fields else None
        names = offered.items if isinstance(offered, Array) else (offered,)
        own = self._credentials
        mechanism = PLAIN if own.user else EXTERNAL
        if mechanism not in names:
            raise Unwelcome(f"the server does not offer {mechanism}")
        response = f"\0{own.user}\0{own.password}".encode() if own.user else b""
        self._step = self._outcome
        return _frame(encode_composite(_INIT, [Symbol(mechanism), response]))

    def _outcome(self) -> bytes:
        body = _take_frame(self.rest)
        if body is None:
            return b""
        fields = _fields(body, _OUTCOME)
        if not fields or fields[0] != _OK:
            raise Unwelcome("the server does not accept who we are")
        self.done = True
        return b""


def _frame(performative: bytes) -> bytes:
    size = 8 + len(performative)
    return size.to_bytes(4, "big") + bytes((2, _SASL_FRAME, 0, 0)) + performative


def _take_frame(buffer: bytearray) -> bytes | None:
    """The performative of the first frame, taken out of the buffer; None: it is not all here."""
    if len(buffer) < 8:
        return None
    size, offset = int.from_bytes(buffer[:4], "big"), 4 * buffer[4]
    if not 8 <= offset <= size <= _MAX_FRAME or buffer[5] != _SASL_FRAME:
        raise Unwelcome("not a SASL frame")
    if len(buffer) < size:
        return None
    body = bytes(buffer[offset:size])
    del buffer[:size]
    return body


def _fields(performative: bytes, code: int) -> list[Value]:
    try:
        value = decode(performative, _VALUES)
    except Refusal as refusal:
        raise Unwelcome(refusal.message) from None
    if (
        not isinstance(value, Described)
        or value.descriptor != code
        or not isinstance(value.value, list)
    ):
        raise Unwelcome(f"a SASL frame other than 0x{code:02x}")
    return value.value
