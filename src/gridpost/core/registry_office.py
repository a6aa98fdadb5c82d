"""The registry office of a subsystem: what may be filed, what an approval makes of it, who is struck off.

Pure decisions of a component-directory about registrations (503 cl. 7.6), pushed entries (7.2),
publication after expiry (8.5) and revocation (8.6). Who is asking was proven before; what is
decided here becomes true when a store has committed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gridpost.core.certificate import Certificate, CertificateKind, still_published
from gridpost.core.component import Component, ComponentType, Contact, Implementation
from gridpost.core.component import inconsistencies as inconsistencies_of
from gridpost.core.identifiers import ComponentCode
from gridpost.core.instant import Instant
from gridpost.core.message_path import Restriction
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import (
    Registration,
    RegistrationRequest,
    RegistrationStatus,
    component_type,
)
from gridpost.core.version import INSTALLED

INSTALLATION = "INSTALLATION"
"""Kind of an installation certificate in the ledger; it is none of the kinds of Table 19."""


@dataclass(frozen=True, slots=True)
class Applicant:
    """Who files a request: a component that the directory knows, or the holder of an invitation."""

    code: ComponentCode
    fingerprint: bytes
    """SHA-256 of the certificate that opened the connection."""
    component: Component | None = None
    """None: the certificate is an installation certificate."""

    @property
    def installing(self) -> bool:
        return self.component is None


@dataclass(frozen=True, slots=True)
class Invitation:
    """An installation certificate that was handed out: for one code, for a short time, for one use."""

    fingerprint: bytes
    code: ComponentCode
    created_at: datetime
    created_by: str
    expires_at: datetime
    registration_id: str = ""
    """The one registration that it was used for."""
    withdrawn_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A line of the ledger: every certificate that was ever issued or published for a component."""

    fingerprint: bytes
    key_digest: bytes
    """SHA-256 of the public key (SubjectPublicKeyInfo)."""
    code: ComponentCode
    kind: str
    certificate_id: str
    not_after: datetime
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that may be filed."""

    type: ComponentType
    extension: bool


def admit(
    request: RegistrationRequest,
    applicant: Applicant,
    taken: Component | None,
    *,
    home: ComponentCode,
) -> Admission:
    """503 cl. 7.6 and Table 25: may this applicant ask for this? `taken` holds the code already."""
    if taken is not None and (applicant.installing or applicant.code != taken.code):
        raise Refusal(
            Rule.REGISTRATION_CODE_TAKEN,
            f"the code {request.code} is registered with {taken.component_directory}",
        )
    if request.code != applicant.code:
        raise Refusal(
            Rule.ACCESS_DENIED,
            f"this certificate may register {applicant.code} only, not {request.code}",
        )
    if applicant.component is not None:
        if applicant.component.type is ComponentType.COMPONENT_DIRECTORY:
            raise Refusal(Rule.ACCESS_DENIED, "only endpoints and brokers register (503 Table 25)")
        if applicant.component.component_directory != home:
            raise Refusal(
                Rule.ACCESS_DENIED,
                f"{applicant.code} is registered with {applicant.component.component_directory} "
                "and extends its registration there",
            )
    kind = component_type(request)
    if applicant.component is not None and kind is not applicant.component.type:
        raise Refusal(
            Rule.REGISTRATION_KEYS,
            f"{request.code} is of type {applicant.component.type}, "
            f"but the request brings the keys of type {kind}",
        )
    _check_contact(request.contact)
    return Admission(kind, extension=applicant.component is not None)


def check_invitation(invitation: Invitation | None, at: datetime) -> Invitation:
    """An installation certificate counts while its invitation stands in the books."""
    if invitation is None or invitation.withdrawn_at is not None:
        raise Refusal(Rule.INSTALLATION_CERTIFICATE, "this installation certificate was withdrawn")
    if at > invitation.expires_at:
        raise Refusal(Rule.INSTALLATION_CERTIFICATE, "this installation certificate has expired")
    return invitation


def same_keys(first: RegistrationRequest, second: RegistrationRequest) -> bool:
    """Is this the same request again, e.g. because its answer was lost on the way?"""

    def keys(request: RegistrationRequest) -> set[tuple[str, bytes]]:
        return {(k.kind, k.spki) for k in request.public_keys} | {
            (c.kind, c.der) for c in request.certificates
        }

    return first.code == second.code and keys(first) == keys(second)


def check_key(
    code: ComponentCode,
    kind: CertificateKind,
    lines: Sequence[IssuedCertificate],
    publishers: Iterable[ComponentCode],
) -> None:
    """One key, one owner, one use. `lines` and `publishers` are all that have this public key.

    A component may keep its own key for a renewal, but not one of which a certificate was revoked:
    then somebody else may have it.
    """
    for line in lines:
        if line.code != code or line.kind != kind:
            raise _certified(kind)
        if line.revoked_at is not None:
            raise Refusal(
                Rule.KEY_ALREADY_CERTIFIED,
                f"the {kind} key belongs to a revoked certificate: generate a new one",
            )
    if any(publisher != code for publisher in publishers):
        raise _certified(kind)


def check_separate(digests: Sequence[bytes]) -> None:
    """503 cl. 4.5.1: the certificates of a component are separate ones, so are their keys."""
    if len(set(digests)) != len(digests):
        raise Refusal(Rule.REGISTRATION_KEYS, "each certificate needs a public key of its own")


def check_external(certificate: Certificate, at: datetime) -> None:
    """503 cl. 7.6: a certificate of an EXTERNAL CA is taken instead of a key while it is valid."""
    if not certificate.valid_at(at):
        raise Refusal(
            Rule.REGISTRATION_KEYS,
            f"the external {certificate.kind} certificate is valid from "
            f"{certificate.not_before:%Y-%m-%d %H:%M} to {certificate.not_after:%Y-%m-%d %H:%M} "
            "UTC only",
        )


def approved(
    registration: Registration, certificates: Sequence[Certificate], *, at: datetime, by: str
) -> Registration:
    return replace(
        _undecided(registration),
        status=RegistrationStatus.APPROVED,
        decided_at=at,
        decided_by=by,
        issued=tuple(certificates),
    )


def rejected(registration: Registration, reason: str, *, at: datetime, by: str) -> Registration:
    return replace(
        _undecided(registration),
        status=RegistrationStatus.REJECTED,
        decided_at=at,
        decided_by=by,
        reason=reason,
    )


def entry_on_approval(
    registration: Registration,
    known: Component | None,
    certificates: Sequence[Certificate],
    *,
    home: ComponentCode,
    at: datetime,
    grace: timedelta,
) -> Component:
    """503 cl. 7.6 and 8.5: a new entry, or the known one with old and new certificates side by side.

    `known` is whatever bears the code now: things may have changed since the request was filed.
    """
    request = registration.request
    if registration.extension:
        if known is None or known.component_directory != home:
            raise Refusal(
                Rule.COMPONENT_UNKNOWN,
                f"{request.code} is no longer registered: its registration cannot be extended",
            )
        kept = [c for c in known.certificates if still_published(c, at, grace)]
        return replace(
            known,
            contact=request.contact,
            certificates=(*kept, *(c for c in certificates if c not in kept)),
            modified=Instant.of(at),
        )
    if known is not None:
        raise Refusal(
            Rule.REGISTRATION_CODE_TAKEN,
            f"the code {request.code} is registered with {known.component_directory}",
        )
    kind = component_type(request)
    return Component(
        request.code,
        kind,
        request.contact,
        home,
        # 503 cl. 9.1: whoever speaks this API complies with version 2, until it says more.
        Implementation(str(INSTALLED)),
        certificates=tuple(certificates),
        created=Instant.of(at),
        modified=Instant.of(at),
        restriction=Restriction() if kind is ComponentType.BROKER else None,
    )


def entry_on_push(known: Component, pushed: Component, *, at: datetime) -> Component:
    """503 cl. 7.2: a push changes the attributes that the component owns, and no other."""
    if pushed.code != known.code:
        raise Refusal(
            Rule.BAD_VALUE, f"the entry in the body is that of {pushed.code}, not of {known.code}"
        )
    changed = replace(
        known,
        contact=pushed.contact,
        urls=pushed.urls,
        implementation=pushed.implementation,
        paths=pushed.paths,
        restriction=pushed.restriction,
    )
    problems = list(inconsistencies_of(changed))
    if problems:
        raise Refusal(
            Rule.INCONSISTENT_CONFIGURATION,
            f"the entry is inconsistent: {problems[0]}",
            "; ".join(problems[1:]),
        )
    # The same content again is no modification: contentID and timestamp stay.
    return known if changed == known else replace(changed, modified=Instant.of(at))


def revocable(component: Component | None, code: str, *, home: ComponentCode) -> Component:
    """503 cl. 8.6: any component of the own subsystem, and none of another; never the directory itself."""
    if component is None:
        raise Refusal(Rule.COMPONENT_UNKNOWN, f"{code} is not in the directory")
    if component.component_directory != home:
        raise Refusal(
            Rule.NOT_OUR_SUBSYSTEM,
            f"{code} belongs to the subsystem of {component.component_directory}: "
            "only its administrator can revoke it",
        )
    if component.type is ComponentType.COMPONENT_DIRECTORY:
        raise Refusal(
            Rule.NOT_OUR_SUBSYSTEM, "a component-directory is not registered, so not revocable"
        )
    return component


def published(component: Component, at: datetime, grace: timedelta) -> Component:
    """503 cl. 8.5: the entry as others see it, without certificates that expired too long ago."""
    kept = tuple(c for c in component.certificates if still_published(c, at, grace))
    return (
        component
        if len(kept) == len(component.certificates)
        else replace(component, certificates=kept)
    )


def next_withdrawal(
    components: Iterable[Component], at: datetime, grace: timedelta
) -> datetime | None:
    """When the published content next changes by the passing of time alone."""
    return min(
        (
            c.not_after + grace
            for component in components
            for c in component.certificates
            if still_published(c, at, grace)
        ),
        default=None,
    )


def _undecided(registration: Registration) -> Registration:
    if registration.status is not RegistrationStatus.PENDING:
        raise Refusal(
            Rule.REGISTRATION_DECIDED,
            f"registration {registration.registration_id} is already {registration.status}",
        )
    return registration


def _check_contact(contact: Contact) -> None:
    for name in ("organization", "person", "email", "phone"):
        if not getattr(contact, name).strip():
            raise Refusal(Rule.BAD_VALUE, f"{name} is empty (503 Table 18)")


def _certified(kind: CertificateKind) -> Refusal:
    # Whose key it is stays unsaid: a stranger could otherwise ask about keys.
    return Refusal(
        Rule.KEY_ALREADY_CERTIFIED,
        f"the {kind} key is already certified for another component or another use",
    )
