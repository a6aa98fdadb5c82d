"""How a component becomes, and stays, a member of a subsystem (503 cl. 7.6): states and their law.

    PREPARED  --submit-->  SUBMITTED  --approve-->  APPROVED  --install-->  INSTALLED

Each state is stored before the next effect: PREPARED before the request leaves, so that a crash
repeats it with the same keys; APPROVED with the certificates before the first is installed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from gridpost.core.certificate import Certificate, CertificateKind, of_kind
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.identifiers import ComponentCode
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import PublicKey, RegistrationRequest


class EnrolmentState(StrEnum):
    PREPARED = "PREPARED"
    SUBMITTED = "SUBMITTED"
    APPROVED = "APPROVED"
    INSTALLED = "INSTALLED"
    REJECTED = "REJECTED"


class EnrolmentEvent(StrEnum):
    PENDING = "PENDING"
    """The directory has the request and has not decided."""
    APPROVE = "APPROVE"
    REJECT = "REJECT"
    REFUSE = "REFUSE"
    """The directory does not even take the request."""
    FORGET = "FORGET"
    """The directory knows no such request: it was restored from a backup, for instance."""
    INSTALL = "INSTALL"
    ABANDON = "ABANDON"
    """The administrator gives up a request that nobody decides."""


_S, _E = EnrolmentState, EnrolmentEvent

# A pair that is not listed is refused.
TRANSITIONS: dict[tuple[EnrolmentState, EnrolmentEvent], EnrolmentState] = {
    (_S.PREPARED, _E.PENDING): _S.SUBMITTED,
    # A directory may decide at once, for example an extension (503 cl. 7.6).
    (_S.PREPARED, _E.APPROVE): _S.APPROVED,
    (_S.PREPARED, _E.REJECT): _S.REJECTED,
    (_S.PREPARED, _E.REFUSE): _S.REJECTED,
    (_S.PREPARED, _E.ABANDON): _S.REJECTED,
    (_S.SUBMITTED, _E.PENDING): _S.SUBMITTED,
    (_S.SUBMITTED, _E.APPROVE): _S.APPROVED,
    (_S.SUBMITTED, _E.REJECT): _S.REJECTED,
    (_S.SUBMITTED, _E.FORGET): _S.PREPARED,
    (_S.SUBMITTED, _E.ABANDON): _S.REJECTED,
    (_S.APPROVED, _E.INSTALL): _S.INSTALLED,
}

FINAL = frozenset({EnrolmentState.INSTALLED, EnrolmentState.REJECTED})


@dataclass(frozen=True, slots=True)
class Home:
    """The component-directory of the subsystem, as far as a component knows it without a copy."""

    code: ComponentCode
    urls: tuple[str, ...]
    certificates: tuple[Certificate, ...] = ()
    """Its AUTHENTICATION and INTEGRATED_CA certificates."""
    roots: tuple[bytes, ...] = ()
    """The ROOT CAs that came with the installation bundle."""

    def entry(self) -> Component:
        """As an entry, so that the one rule of peer identity judges it."""
        return Component(
            self.code,
            ComponentType.COMPONENT_DIRECTORY,
            Contact("", "", "", ""),
            self.code,
            Implementation(""),
            self.urls,
            self.certificates,
        )

    def knowing(self, authorities: tuple[Certificate, ...]) -> Home:
        """With INTEGRATED CAs that were learned since."""
        known = {c.der for c in self.certificates}
        new = tuple(c for c in authorities if c.der not in known)
        return replace(self, certificates=self.certificates + new)


@dataclass(frozen=True, slots=True)
class Enrolment:
    """One registration, or one extension of it, from intent to installation."""

    state: EnrolmentState
    home: Home
    request: RegistrationRequest
    extension: bool
    connect_with: Certificate
    """The installation certificate, or for an extension the authentication certificate."""
    registration_id: str = ""
    reason: str = ""
    certificates: tuple[Certificate, ...] = ()
    """What the directory issued, from APPROVED on."""

    @property
    def final(self) -> bool:
        return self.state in FINAL


def advance(
    enrolment: Enrolment,
    event: EnrolmentEvent,
    *,
    registration_id: str = "",
    reason: str = "",
    certificates: tuple[Certificate, ...] = (),
) -> Enrolment:
    """The enrolment after an event, or a refusal of an event that cannot happen now."""
    after = TRANSITIONS.get((enrolment.state, event))
    if after is None:
        raise Refusal(
            Rule.REGISTRATION_DECIDED,
            f"a registration that is {enrolment.state} cannot {event.lower()}",
        )
    authorities = tuple(of_kind(certificates, CertificateKind.INTEGRATED_CA))
    return replace(
        enrolment,
        state=after,
        home=enrolment.home.knowing(authorities),
        registration_id="" if event is _E.FORGET else registration_id or enrolment.registration_id,
        reason=reason,
        certificates=certificates or enrolment.certificates,
    )


def issued_for(
    request: RegistrationRequest,
    received: tuple[Certificate, ...],
    keys: dict[bytes, bytes],
) -> tuple[Certificate, ...]:
    """The certificates to install, one for each key asked for; or a refusal of a wrong answer.

    `keys` gives the public key (SPKI) of each received certificate.
    """
    chosen: list[Certificate] = []
    for key in request.public_keys:
        fitting = [c for c in of_kind(received, key.kind) if keys.get(c.der) == key.spki]
        if not fitting:
            raise Refusal(
                Rule.BAD_CERTIFICATE,
                f"the directory approved {request.code} without a certificate for its "
                f"{key.kind} key",
            )
        chosen.append(fitting[0])
    return tuple(chosen)


def request_for(
    code: ComponentCode,
    contact: Contact,
    keys: dict[CertificateKind, bytes],
    external: tuple[Certificate, ...] = (),
) -> RegistrationRequest:
    """503 cl. 7.6: external certificates stand in for generated keys of their kind."""
    covered = {c.kind for c in external}
    return RegistrationRequest(
        contact,
        code,
        tuple(PublicKey(kind, spki) for kind, spki in keys.items() if kind not in covered),
        external,
    )
