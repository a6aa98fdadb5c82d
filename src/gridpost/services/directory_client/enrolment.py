"""Registration and its extension from the component's side (503 cl. 7.6), one durable step at a time.

Every effect on the world follows a commit that says it is coming: a process that is killed at any
point goes on where it was, with the same keys. The states are those of `core.enrolment`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import structlog

from gridpost.core.certificate import Certificate, CertificateKind, of_kind
from gridpost.core.component import CERTIFICATE_KINDS, Contact
from gridpost.core.enrolment import (
    Enrolment,
    EnrolmentEvent,
    EnrolmentState,
    Home,
    advance,
    issued_for,
    request_for,
)
from gridpost.core.journal import AdministrationRow
from gridpost.core.ports import DirectoryClientWork
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.registration import RegistrationStatus, component_type
from gridpost.services.directory_client.context import ClientContext
from gridpost.services.directory_client.credentials import OwnCredentials
from gridpost.services.directory_client.directory_peer import is_directory
from gridpost.services.directory_client.exchange import DirectoryExchange
from gridpost.services.directory_client.local_copy import LocalCopy
from gridpost.services.directory_client.retry import Backoff
from gridpost.wire.directory import RegistrationAnswer
from gridpost.wire.directory.bundle import InstallationBundle, installation_certificate
from gridpost.wire.x509 import (
    KeyBundle,
    Purpose,
    public_key,
    public_key_bytes,
    read_certificate,
    trusted_path,
)

log = structlog.get_logger(__name__)

# Answers by which a directory says that it does not take this request, however often it comes.
_REFUSALS = frozenset({Rule.REFUSED_BY_DIRECTORY, Rule.REGISTRATION_CODE_TAKEN, Rule.ACCESS_DENIED})


@dataclass(frozen=True, slots=True)
class OwnKeys:
    """What the administrator brings; a kind that is in neither gets a generated key."""

    imported: Mapping[CertificateKind, bytes] | None = None
    """Private keys (PKCS#8, DER) that the directory shall certify."""
    external: Mapping[CertificateKind, KeyBundle] | None = None
    """SIGNING and ENCRYPTION keys with certificates of EXTERNAL CAs (503 cl. 8.3.3)."""


class Enroller:
    def __init__(
        self, context: ClientContext, copy: LocalCopy, credentials: OwnCredentials
    ) -> None:
        self._context = context
        self._copy = copy
        self._credentials = credentials
        self._backoff = Backoff(context.retries)
        self._listeners: list[Callable[[Enrolment], None]] = []
        self.reason = ""
        """Why the last step did not succeed; empty when it did."""

    def on_installed(self, listener: Callable[[Enrolment], None]) -> None:
        self._listeners.append(listener)

    async def current(self) -> Enrolment | None:
        return await self._context.store.read(lambda work: work.enrolment.load())

    async def register(
        self,
        bundle: InstallationBundle,
        password: str,
        contact: Contact,
        keys: OwnKeys | None = None,
        *,
        by: str,
    ) -> Enrolment:
        """Prepare a first registration. Nothing is sent yet: `step` does that, now or after a crash."""
        if bundle.code != self._context.code:
            raise Refusal(
                Rule.BAD_KEY,
                f"the installation bundle is for {bundle.code}, not for {self._context.code}",
            )
        opened = bundle.open(password)
        await self._none_running()
        # Kept until the registration is decided: polling needs it after a restart as well.
        await asyncio.to_thread(self._context.keys.import_key, opened.private_key)
        return await self._prepare(
            bundle.home(opened.issuers),
            installation_certificate(opened),
            contact,
            keys or OwnKeys(),
            extension=False,
            by=by,
        )

    async def renew(
        self, contact: Contact | None = None, keys: OwnKeys | None = None, *, by: str
    ) -> Enrolment:
        """Prepare an extension: new keys of all kinds at once (503 cl. 8.5)."""
        before = await self._none_running()
        home = self._copy.home
        if before is None or home is None:
            raise Refusal(Rule.NOT_ENROLLED, f"{self._context.code} is not registered yet")
        shown = self._credentials.chosen(self._context.clock.now())
        return await self._prepare(
            home,
            shown,
            contact or before.request.contact,
            keys or OwnKeys(),
            extension=True,
            by=by,
        )

    async def abandon(self, reason: str, *, by: str) -> Enrolment:
        """Give up a request that nobody decides; its keys are never used."""
        enrolment = await self.current()
        if enrolment is None:
            raise Refusal(Rule.NOT_ENROLLED, "there is no registration to give up")
        return await self._move(enrolment, EnrolmentEvent.ABANDON, by=by, reason=reason)

    async def run(self) -> Enrolment:
        """Step after step until the registration is installed or rejected."""
        while True:
            delay = await self.step()
            if delay is None:
                enrolment = await self.current()
                if enrolment is None:
                    raise Refusal(Rule.NOT_ENROLLED, f"{self._context.code} is not registered yet")
                return enrolment
            await asyncio.sleep(delay.total_seconds())

    async def step(self) -> timedelta | None:
        """The next thing to do, once; how long to wait for the one after, None when all is done."""
        enrolment = await self.current()
        if enrolment is None or enrolment.final:
            return None
        try:
            if enrolment.state is EnrolmentState.PREPARED:
                after = await self._submit(enrolment)
            elif enrolment.state is EnrolmentState.SUBMITTED:
                after = await self._poll(enrolment)
            else:
                after = await self._install(enrolment)
        except Refusal as refusal:
            self.reason = refusal.message
            log.warning(
                "registration step failed",
                state=enrolment.state,
                reason=refusal.message,
                more=refusal.details,
                id=refusal.id,
            )
            return self._backoff.failed()
        self.reason = after.reason
        if after.state is EnrolmentState.PREPARED:
            return self._backoff.failed()
        self._backoff.succeeded()
        if after.final:
            return None
        waiting = after.state is EnrolmentState.SUBMITTED
        return self._context.settings.poll if waiting else timedelta(0)

    async def _prepare(
        self,
        home: Home,
        connect_with: Certificate,
        contact: Contact,
        keys: OwnKeys,
        *,
        extension: bool,
        by: str,
    ) -> Enrolment:
        external = await asyncio.to_thread(self._bring_in, keys.external or {})
        covered = {c.kind for c in external}
        public: dict[CertificateKind, bytes] = {}
        for kind in sorted(CERTIFICATE_KINDS[self._context.type] - covered):
            public[kind] = await asyncio.to_thread(self._key, kind, keys.imported or {})
        request = request_for(self._context.code, contact, public, external)
        if component_type(request) is not self._context.type:
            raise Refusal(
                Rule.REGISTRATION_KEYS, f"these are not the keys of a {self._context.type.lower()}"
            )
        enrolment = Enrolment(EnrolmentState.PREPARED, home, request, extension, connect_with)
        await self._store(enrolment, by, "extension" if extension else "registration", "", "")
        await self._copy.load()
        return enrolment

    def _key(self, kind: CertificateKind, imported: Mapping[CertificateKind, bytes]) -> bytes:
        """503 cl. 7.6: from the integrated generator, or made elsewhere."""
        if kind in imported:
            return self._context.keys.import_key(imported[kind])
        return self._context.keys.create_key(self._context.settings.key_bits, kind)

    def _bring_in(self, external: Mapping[CertificateKind, KeyBundle]) -> tuple[Certificate, ...]:
        certificates = []
        for kind, bundle in external.items():
            certificate = read_certificate(bundle.certificate, kind)
            if not certificate.valid_at(self._context.clock.now()):
                raise Refusal(
                    Rule.CERTIFICATE_EXPIRED, f"the external {kind} certificate is not valid now"
                )
            self._context.keys.import_key(bundle.private_key)
            certificates.append(certificate)
        return tuple(certificates)

    async def _submit(self, enrolment: Enrolment) -> Enrolment:
        try:
            answer, authorities = await self._exchange(enrolment).register(enrolment.request)
        except Refusal as refusal:
            if refusal.rule not in _REFUSALS:
                raise
            return await self._move(enrolment, EnrolmentEvent.REFUSE, reason=refusal.message)
        return await self._answered(enrolment, answer, authorities)

    async def _poll(self, enrolment: Enrolment) -> Enrolment:
        exchange = self._exchange(enrolment)
        try:
            answer, authorities = await exchange.registration(enrolment.registration_id)
        except Refusal as refusal:
            if refusal.rule is not Rule.RESOURCE_UNKNOWN:
                raise
            return await self._move(enrolment, EnrolmentEvent.FORGET, reason=refusal.message)
        return await self._answered(enrolment, answer, authorities)

    async def _answered(
        self,
        enrolment: Enrolment,
        answer: RegistrationAnswer,
        authorities: Sequence[Certificate],
    ) -> Enrolment:
        known_as = answer.registration_id
        if answer.code != enrolment.request.code or not known_as:
            raise Refusal(
                Rule.FIELDS_DISAGREE, "the directory answered with the registration of another"
            )
        if answer.status is RegistrationStatus.PENDING:
            if enrolment.registration_id == known_as:
                return enrolment
            return await self._move(enrolment, EnrolmentEvent.PENDING, registration_id=known_as)
        if answer.status is RegistrationStatus.REJECTED:
            return await self._move(
                enrolment,
                EnrolmentEvent.REJECT,
                registration_id=known_as,
                reason=answer.reason or "no reason given",
            )
        certificates = self._checked(enrolment, answer.certificates, authorities)
        return await self._move(
            enrolment,
            EnrolmentEvent.APPROVE,
            registration_id=known_as,
            certificates=certificates,
        )

    def _checked(
        self,
        enrolment: Enrolment,
        received: tuple[Certificate, ...],
        authorities: Sequence[Certificate],
    ) -> tuple[Certificate, ...]:
        """What will be installed, and the INTEGRATED CAs above it; a wrong set is not taken at all."""
        keys = {c.der: public_key_bytes(public_key(c.der)) for c in received}
        issued = issued_for(enrolment.request, received, keys)
        sources = (received, authorities, enrolment.home.certificates)
        cas = {
            c.der: c for source in sources for c in of_kind(source, CertificateKind.INTEGRATED_CA)
        }
        now = self._context.clock.now()
        for certificate in of_kind(issued, CertificateKind.AUTHENTICATION):
            if certificate.subject_code != enrolment.request.code:
                raise Refusal(
                    Rule.CERTIFICATE_NOT_OF_COMPONENT,
                    f"the directory issued a certificate for '{certificate.subject_code}'",
                )
            trusted_path(certificate.der, cas, tuple(self._context.roots()), now, Purpose.CLIENT)
        return (*issued, *cas.values())

    async def _install(self, enrolment: Enrolment) -> Enrolment:
        """503 cl. 7.6. Installing one again changes nothing, so a crash in between does no harm."""
        wanted = {key.kind for key in enrolment.request.public_keys}
        issued = [c for c in enrolment.certificates if c.kind in wanted]
        for certificate in (*issued, *enrolment.request.certificates):
            await asyncio.to_thread(self._context.keys.install, certificate)
        after = await self._move(enrolment, EnrolmentEvent.INSTALL)
        await self._copy.load()
        for listener in self._listeners:
            listener(after)
        return after

    def _exchange(self, enrolment: Enrolment) -> DirectoryExchange:
        """The certificate that posted a request is the one that may ask for its outcome."""
        context, home = self._context, enrolment.home
        purpose = Purpose.CLIENT if enrolment.extension else Purpose.INSTALLATION
        entry = self._copy.directory_entry(home.code) if enrolment.extension else None
        return DirectoryExchange(
            context.callers(lambda: self._credentials.of(enrolment.connect_with, purpose)),
            entry.urls if entry is not None and entry.urls else home.urls,
            is_directory(entry or home.entry(), home, context.roots, context.clock),
        )

    async def _none_running(self) -> Enrolment | None:
        enrolment = await self.current()
        if enrolment is not None and not enrolment.final:
            raise Refusal(
                Rule.ENROLMENT_RUNNING,
                f"a registration of {self._context.code} is {enrolment.state} already",
                "wait for its outcome or give it up",
            )
        return enrolment

    async def _move(
        self,
        enrolment: Enrolment,
        event: EnrolmentEvent,
        *,
        registration_id: str = "",
        reason: str = "",
        certificates: tuple[Certificate, ...] = (),
        by: str = "",
    ) -> Enrolment:
        after = advance(
            enrolment,
            event,
            registration_id=registration_id,
            reason=reason,
            certificates=certificates,
        )
        await self._store(
            after, by or after.home.code, f"registration {event.lower()}", enrolment.state, reason
        )
        log.info("registration", state=after.state, id=after.registration_id, reason=reason)
        return after

    async def _store(
        self, enrolment: Enrolment, by: str, action: str, before: str, reason: str
    ) -> None:
        row = AdministrationRow(
            self._context.clock.now(),
            actor=by,
            action=action,
            target=enrolment.request.code,
            before=before,
            after=enrolment.state,
            reason=reason,
        )

        def work(unit: DirectoryClientWork) -> None:
            unit.enrolment.save(enrolment)
            unit.journal.append(row)

        await self._context.store.run(work)
