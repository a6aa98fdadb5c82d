"""WS-Security of a bus, from its configuration: whose signatures count, and with which key it signs."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_der_private_key

from gridpost.assembly.bus_links import SecuritySection
from gridpost.assembly.console import FileCredentials
from gridpost.assembly.directory_configuration import read_certificates
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.bus.soap_api import Security
from gridpost.wire.soap.envelope import Envelope
from gridpost.wire.soap.security import SECURITY, BodySigner, BodyVerifier
from gridpost.wire.x509.chain import trusted_path


class SoapSecurity:
    def __init__(self, section: SecuritySection, clock: Clock) -> None:
        self._verifier: BodyVerifier | None = None
        self._signer: BodySigner | None = None
        if section.verify and section.roots is not None:
            roots = read_certificates(section.roots)

            def trust(der: bytes) -> None:
                trusted_path(der, roots, roots, clock.now())

            self._verifier = BodyVerifier(trust, clock.now, section.window)
        if section.certificate is not None and section.key is not None:
            credentials = FileCredentials(section.certificate, section.key)()
            key = load_der_private_key(credentials.private_key, None)
            if not isinstance(key, rsa.RSAPrivateKey):
                raise Refusal(Rule.BAD_KEY, f"{section.key} is no RSA key")
            self._signer = BodySigner(credentials.chain[0], key, clock.now)

    @property
    def signs(self) -> bool:
        return self._signer is not None

    def sign(self, message: bytes) -> bytes:
        return message if self._signer is None else self._signer.sign(message)

    def for_server(self) -> Security:
        # 61968-100 cl. 9: a header that is not looked at is not passed over when it must be.
        understood = frozenset({SECURITY}) if self._verifier is not None else frozenset[str]()
        return Security(understood, self._check, self.sign)

    def _check(self, envelope: Envelope) -> None:
        if self._verifier is not None:
            self._verifier.verify(envelope.body.getroottree().getroot())
