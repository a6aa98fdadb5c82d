"""The registry office at work: requests are filed, decided and read, components struck off.

503 cl. 7.6 and 8.6. Everything that belongs together commits together with its journal row.
Certificates are issued before the transaction that publishes them, and are worth nothing until it
has committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

import structlog

from gridpost.core import directory_journal
from gridpost.core.certificate import Certificate
from gridpost.core.component import Component
from gridpost.core.directory_ports import Connections, RegistryStore, RegistryUnit
from gridpost.core.identifiers import ComponentCode, component_code
from gridpost.core.journal import AdministrationRow, Standing
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import Registration, RegistrationRequest, RegistrationStatus
from gridpost.core.registry_office import (
    INSTALLATION,
    Admission,
    Applicant,
    Invitation,
    admit,
    approved,
    check_external,
    check_key,
    check_separate,
    entry_on_approval,
    rejected,
    revocable,
    same_keys,
)
from gridpost.services.component_directory.authority import (
    Authority,
    fingerprint,
    key_digest,
    key_digests,
    ledger_line,
)
from gridpost.services.component_directory.papers import Filed, InstallationKit, NewKey
from gridpost.services.component_directory.publication import Publication
from gridpost.services.component_directory.settings import Extensions
from gridpost.wire.x509 import read_certificate

log = structlog.get_logger(__name__)

AUTOMATIC = "automatic approval"


class RegistryOffice:
    """Filing and deciding registrations of one subsystem."""

    def __init__(
        self,
        store: RegistryStore,
        clock: Clock,
        publication: Publication,
        authority: Authority,
        connections: Connections,
        make_key: Callable[[], NewKey],
    ) -> None:
        self._store = store
        self._clock = clock
        self._publication = publication
        self._authority = authority
        self._connections = connections
        self._make_key = make_key

    async def file(self, request: RegistrationRequest, applicant: Applicant) -> Filed:
        """503 Table 25, POST: a new request, PENDING unless it is an extension approved at once."""
        at = self._clock.now()
        settings = self._publication.settings
        taken = await self._publication.find(request.code)
        before = await self._repeated(request, applicant)
        if before is not None:
            return Filed(before, repeated=True)
        admission = admit(request, applicant, taken, home=settings.code)
        request = self._readable(request, at)
        keys = key_digests(request)
        check_separate([digest for _, digest in keys])
        publishers = await self._publishers()
        registration = Registration(
            str(uuid4()),
            request,
            RegistrationStatus.PENDING,
            at,
            applicant.fingerprint,
            admission.extension,
        )

        def work(unit: RegistryUnit) -> None:
            for kind, digest in keys:
                check_key(
                    request.code, kind, unit.ledger.of_key(digest), publishers.get(digest, ())
                )
            self._book(unit, registration, applicant)

        await self._store.run(work)
        log.info(
            "registration filed",
            registration=registration.registration_id,
            code=request.code,
            type=admission.type,
            extension=admission.extension,
        )
        if self._approves_itself(admission, request):
            registration = await self.approve(registration.registration_id, by=AUTOMATIC)
        return Filed(registration)

    async def find(self, registration_id: str, applicant: Applicant) -> Registration:
        """503 Table 25, GET: for the component that filed it, whatever its state."""
        found = await self._store.read(lambda unit: unit.registrations.find(registration_id))
        if found is None:
            raise Refusal(Rule.REGISTRATION_UNKNOWN, "there is no such registration")
        filed_it = found.submitted_by == applicant.fingerprint
        is_it = not applicant.installing and applicant.code == found.request.code
        if not filed_it and not is_it:
            raise Refusal(Rule.ACCESS_DENIED, "this registration is another component's")
        return found

    async def approve(self, registration_id: str, *, by: str) -> Registration:
        """503 cl. 7.6: certificates are issued, and the entry is created or extended and published."""
        at = self._clock.now()
        settings = self._publication.settings
        pending = await self._pending(registration_id)
        elsewhere = await self._elsewhere(pending.request.code)
        certificates = await self._authority.certify(pending.request, at)

        def work(unit: RegistryUnit) -> Registration:
            registration = approved(_known(unit, registration_id), certificates, at=at, by=by)
            code = registration.request.code
            entry = entry_on_approval(
                registration,
                unit.entries.find(code) or elsewhere,
                certificates,
                home=settings.code,
                at=at,
                grace=settings.published_after_expiry,
            )
            for certificate in certificates:
                digest = key_digest(certificate.der)
                check_key(code, certificate.kind, unit.ledger.of_key(digest), ())
                unit.ledger.record(ledger_line(certificate, code))
            known = unit.entries.find(code)
            unit.entries.put(entry)
            for row in directory_journal.rows([known] if known else [], [entry], at):
                unit.journal.append(row)
            unit.registrations.save(registration)
            unit.journal.append(
                AdministrationRow(
                    at,
                    actor=by,
                    action="registration approved",
                    target=code,
                    before=RegistrationStatus.PENDING,
                    after=RegistrationStatus.APPROVED,
                    reason=registration_id,
                )
            )
            return registration

        registration = await self._store.run(work)
        log.info("registration approved", registration=registration_id, by=by)
        return registration

    async def reject(self, registration_id: str, reason: str, *, by: str) -> Registration:
        at = self._clock.now()
        reason = _stated(reason, "a rejection")

        def work(unit: RegistryUnit) -> Registration:
            registration = rejected(_known(unit, registration_id), reason, at=at, by=by)
            unit.registrations.save(registration)
            unit.journal.append(
                AdministrationRow(
                    at,
                    actor=by,
                    action="registration rejected",
                    target=registration.request.code,
                    before=RegistrationStatus.PENDING,
                    after=RegistrationStatus.REJECTED,
                    reason=reason,
                )
            )
            return registration

        registration = await self._store.run(work)
        log.info("registration rejected", registration=registration_id, by=by, reason=reason)
        return registration

    async def invite(self, code: str, *, by: str) -> InstallationKit:
        """503 cl. 7.6: an installation certificate for one code, to be used once and soon."""
        at = self._clock.now()
        wanted = component_code(code)
        taken = await self._publication.find(wanted)
        if taken is not None:
            raise Refusal(
                Rule.REGISTRATION_CODE_TAKEN,
                f"the code {wanted} is registered with {taken.component_directory}",
            )
        if any(peer.code == wanted for peer in self._publication.settings.peers):
            raise Refusal(
                Rule.REGISTRATION_CODE_TAKEN, f"{wanted} is a configured component-directory"
            )
        key = self._make_key()
        lasting = self._publication.settings.installation_validity
        certificate, issuer = await self._authority.invite(wanted, key.spki, at, lasting)
        invitation = Invitation(fingerprint(certificate.der), wanted, at, by, certificate.not_after)

        def work(unit: RegistryUnit) -> None:
            # The newest invitation counts: an unused one may have gone astray.
            _withdraw_invitations(unit, wanted, at, used=False)
            unit.invitations.add(invitation)
            unit.ledger.record(ledger_line(certificate, wanted, INSTALLATION))
            unit.journal.append(
                AdministrationRow(
                    at,
                    actor=by,
                    action="component invited",
                    target=wanted,
                    after=certificate.certificate_id,
                )
            )

        await self._store.run(work)
        log.info("component invited", code=wanted, by=by, until=str(certificate.not_after))
        return InstallationKit(invitation, key, certificate.der, issuer)

    async def revoke(self, code: str, reason: str, *, by: str) -> Component:
        """503 cl. 8.6: the entry goes, its certificates never count again, its connections end."""
        at = self._clock.now()
        reason = _stated(reason, "a revocation")
        elsewhere = await self._elsewhere(code)

        def work(unit: RegistryUnit) -> tuple[Component, list[bytes]]:
            component = revocable(
                unit.entries.find(code) or elsewhere,
                code,
                home=self._publication.settings.code,
            )
            unit.entries.remove(component.code)
            marked = unit.ledger.revoke(component.code, at)
            _withdraw_invitations(unit, component.code, at, used=True)
            for pending in unit.registrations.of_component(component.code):
                if pending.status is RegistrationStatus.PENDING:
                    unit.registrations.save(
                        rejected(pending, "the component was revoked", at=at, by=by)
                    )
            unit.journal.append(
                AdministrationRow(
                    at,
                    actor=by,
                    action="component revoked",
                    target=component.code,
                    before=f"{component.type} with {len(marked)} certificates",
                    reason=reason,
                )
            )
            for row in directory_journal.rows([component], [], at, gone=Standing.REVOKED):
                unit.journal.append(row)
            return component, [line.fingerprint for line in marked]

        component, fingerprints = await self._store.run(work)
        closed = self._connections.close_of(fingerprints)
        log.warning(
            "component revoked", code=component.code, by=by, reason=reason, connections=closed
        )
        return component

    async def search(
        self, status: RegistrationStatus | None, limit: int = 1000
    ) -> Sequence[Registration]:
        return await self._store.read(lambda unit: unit.registrations.search(status, limit))

    async def show(self, registration_id: str) -> Registration:
        """For the administrator, who may see all."""
        return await self._store.read(lambda unit: _known(unit, registration_id))

    async def _pending(self, registration_id: str) -> Registration:
        registration = await self.show(registration_id)
        if registration.status is not RegistrationStatus.PENDING:
            raise Refusal(
                Rule.REGISTRATION_DECIDED,
                f"registration {registration_id} is already {registration.status}",
            )
        return registration

    def _book(self, unit: RegistryUnit, registration: Registration, applicant: Applicant) -> None:
        """Into the books, or a refusal because of what was booked in the meantime."""
        code = registration.request.code
        if any(
            r.status is RegistrationStatus.PENDING for r in unit.registrations.of_component(code)
        ):
            raise Refusal(
                Rule.REGISTRATION_REPEATED,
                f"another registration of {code} waits for its decision",
            )
        if registration.extension and unit.entries.find(code) is None:
            raise Refusal(Rule.ACCESS_DENIED, f"{code} is no longer registered")
        if applicant.installing:
            invitation = unit.invitations.find(applicant.fingerprint)
            if invitation is None or invitation.registration_id or invitation.withdrawn_at:
                raise Refusal(
                    Rule.INSTALLATION_CERTIFICATE,
                    "this installation certificate was used already: ask for a new one",
                )
            unit.invitations.save(replace(invitation, registration_id=registration.registration_id))
        unit.registrations.add(registration)
        unit.journal.append(
            AdministrationRow(
                registration.submitted_at,
                actor=applicant.code,
                action="extension filed" if registration.extension else "registration filed",
                target=code,
                after=registration.registration_id,
            )
        )

    async def _repeated(
        self, request: RegistrationRequest, applicant: Applicant
    ) -> Registration | None:
        """The same request by the same applicant: its first answer may have been lost."""
        filed = await self._store.read(lambda unit: unit.registrations.of_component(request.code))
        for registration in filed:
            by_same = registration.submitted_by == applicant.fingerprint or (
                registration.extension and _extended_by(applicant, registration)
            )
            if by_same and same_keys(registration.request, request):
                return registration
        return None

    def _readable(self, request: RegistrationRequest, at: datetime) -> RegistrationRequest:
        """External certificates as they will be published; what they say of themselves is not taken."""
        external: list[Certificate] = []
        for certificate in request.certificates:
            try:
                external.append(read_certificate(certificate.der, certificate.kind))
            except Refusal as refusal:
                raise Refusal(Rule.REGISTRATION_KEYS, refusal.message, refusal.details) from refusal
            check_external(external[-1], at)
        return replace(request, certificates=tuple(external))

    async def _publishers(self) -> dict[bytes, set[ComponentCode]]:
        """Who publishes which key anywhere in the system."""
        owners: dict[bytes, set[ComponentCode]] = {}
        for component in (await self._publication.directory()).components(self._clock.now()):
            for certificate in component.certificates:
                try:
                    digest = key_digest(certificate.der)
                except Refusal:  # a replica may hold certificates that only its own readers can use
                    continue
                owners.setdefault(digest, set()).add(component.code)
        return owners

    async def _elsewhere(self, code: str) -> Component | None:
        """The bearer of a code in another subsystem."""
        component = await self._publication.find(code)
        home = self._publication.settings.code
        return component if component and component.component_directory != home else None

    def _approves_itself(self, admission: Admission, request: RegistrationRequest) -> bool:
        mode = self._publication.settings.extensions
        return admission.extension and (
            mode is Extensions.AUTOMATIC
            or (mode is Extensions.ISSUED_HERE and not request.certificates)
        )


def _known(unit: RegistryUnit, registration_id: str) -> Registration:
    registration = unit.registrations.find(registration_id)
    if registration is None:
        raise Refusal(Rule.REGISTRATION_UNKNOWN, f"there is no registration {registration_id}")
    return registration


def _extended_by(applicant: Applicant, registration: Registration) -> bool:
    """Did this component file it, and not an earlier bearer of its code that was revoked?"""
    component = applicant.component
    return (
        component is not None
        and component.code == registration.request.code
        and component.created is not None
        and component.created.at <= registration.submitted_at
    )


def _withdraw_invitations(unit: RegistryUnit, code: str, at: datetime, *, used: bool) -> None:
    for invitation in unit.invitations.of_component(code):
        if invitation.withdrawn_at is None and (used or not invitation.registration_id):
            unit.invitations.save(replace(invitation, withdrawn_at=at))


def _stated(reason: str, what: str) -> str:
    if not reason.strip():
        raise Refusal(Rule.USAGE, f"{what} needs a reason")
    return reason.strip()
