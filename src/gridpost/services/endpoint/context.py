"""What every part of one endpoint shares: its identity, settings, keys, directory, clock and store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gridpost.core.acceptance import MaximumDurations
from gridpost.core.certificate import Certificate, CertificateKind, of_kind, select
from gridpost.core.identifiers import ComponentCode, MessageTypePattern, matches
from gridpost.core.ports import Clock, Keyring, Signer, Store
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory
from gridpost.services.endpoint.checking import Checking
from gridpost.services.endpoint.holding import Holding
from gridpost.services.endpoint.signals import Signals
from gridpost.wire.seal.profile import DEFAULT, Profile


@dataclass(frozen=True, slots=True)
class EndpointSettings:
    """What the administrator of an endpoint decides."""

    durations: MaximumDurations = field(default_factory=MaximumDurations)
    strict_patterns: bool = False
    max_content: int = 64 * 1024 * 1024
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    """Seal profiles by peer; `*` is that of all who are not named."""
    priorities: Mapping[MessageTypePattern, int] = field(default_factory=dict)
    """503 cl. 5.10: higher goes first; a message-type that nothing matches has 0."""
    ordered: tuple[MessageTypePattern, ...] = ()
    """Message-types that are transferred one after the other to each recipient (503 cl. 5.11)."""
    journalled_content: tuple[MessageTypePattern, ...] = ()
    """Message-types whose documents are journalled; none unless the owner says so."""
    log_messages: bool = True
    """A log line for each step of each message."""

    def profile(self, peer: str) -> Profile:
        return self.profiles.get(peer) or self.profiles.get("*", DEFAULT)

    def priority(self, message_type: str) -> int:
        """The identical message-type, else the longest pattern."""
        fitting = [p for p in self.priorities if matches(p, message_type)]
        best = max(fitting, key=lambda p: (p == message_type, len(p)), default=None)
        return 0 if best is None else self.priorities[best]

    def keeps_order(self, message_type: str) -> bool:
        return any(matches(pattern, message_type) for pattern in self.ordered)

    def journals_content(self, message_type: str) -> bool:
        return any(matches(pattern, message_type) for pattern in self.journalled_content)


@dataclass(slots=True)
class EndpointContext:
    """`settings` and what `holding` says change while the endpoint runs: asked for at each use."""

    code: ComponentCode
    store: Store
    keyring: Keyring
    clock: Clock
    directory: Callable[[], Directory]
    """The current local copy: asked anew for every message."""
    settings: EndpointSettings = field(default_factory=EndpointSettings)
    signals: Signals = field(default_factory=Signals)
    holding: Holding = field(default_factory=Holding)
    checking: Checking = field(default_factory=Checking)
    shared: bool = False
    """Other processes of this endpoint use the same store."""

    def signer(self, at: datetime) -> Signer:
        """503 cl. 8.5: of our valid signing certificates, the one that expires first."""
        signers = {s.certificate.certificate_id: s for s in self.keyring.signers()}
        chosen = select((s.certificate for s in signers.values()), CertificateKind.SIGNING, at)
        if chosen is None:
            raise Refusal(
                Rule.NO_SIGNING_CERTIFICATE,
                f"{self.code} has no valid signing certificate",
                "renew the certificates of this endpoint",
            )
        return signers[chosen.certificate_id]

    def signing_certificates(self, peer: str, at: datetime) -> list[Certificate]:
        """What the directory publishes for `peer` now; nothing for a revoked one (503 cl. 8.6)."""
        component = self.directory().find(peer, at)
        if component is None:
            return []
        return of_kind(component.certificates, CertificateKind.SIGNING)

    def display_name(self, code: str) -> str:
        """503 Table 42: the organization of a component, as long as it is known."""
        component = self.directory().find(code, self.clock.now())
        return "" if component is None else component.contact.organization
