"""The configuration file of a component-directory: its keys, their defaults, and what they must not say."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator
from pydantic_settings import SettingsConfigDict

from gridpost.assembly.configuration import Duration, Period, Port, read_configuration
from gridpost.assembly.console_configuration import ConsoleSection, console_in
from gridpost.assembly.journal_configuration import ExportSection
from gridpost.assembly.postgres_configuration import PostgresSection
from gridpost.assembly.watching_configuration import WatchedConfiguration, watched_in
from gridpost.core.component import Contact
from gridpost.core.identifiers import ComponentCode, component_code
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.component_directory.settings import DirectorySettings, Extensions, Peer
from gridpost.services.operations.administrators import check_hash
from gridpost.wire.x509 import from_pem

COMPONENT = "component-directory"


def _code(text: str) -> str:
    try:
        return component_code(text)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None


def _https(url: str) -> str:
    if not url.startswith("https://"):
        raise ValueError(f"'{url}' must begin with https:// (503 cl. 7.4)")
    return url


def _hash(text: str) -> str:
    try:
        check_hash(text)
    except Refusal as refusal:
        raise ValueError(refusal.message) from None
    return text


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Code = Annotated[str, AfterValidator(_code)]
Url = Annotated[str, AfterValidator(_https)]
Text = Annotated[str, Field(min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ContactSection(_Section):
    """503 Table 18: whom to call about this directory."""

    organization: Text
    person: Text
    email: Text
    phone: Text


class ServerSection(_Section):
    host: str = "0.0.0.0"
    port: Port = 8443
    urls: Annotated[tuple[Url, ...], Field(min_length=1)]
    """Under which others reach this server, primary first."""
    max_connections: Annotated[int, Field(ge=1)] = 1000
    max_body: Annotated[int, Field(ge=1024)] = 2 * 1024 * 1024


class RegistrationSection(_Section):
    extensions: Extensions = Extensions.ISSUED_HERE
    certificate_validity: Period = timedelta(days=730)
    installation_validity: Period = timedelta(days=7)


class PeerSection(_Section):
    code: Code
    urls: Annotated[tuple[Url, ...], Field(min_length=1)]
    integrated_ca: Path | None = None
    """Its INTEGRATED CA certificate (PEM), to be sure of it at the first contact."""


class SynchronisationSection(_Section):
    ttl: Period = timedelta(hours=24)
    cycle: Period = timedelta(minutes=2)
    proxy: str = ""
    peers: tuple[PeerSection, ...] = ()


class CertificatesSection(_Section):
    published_after_expiry: Duration = timedelta(hours=48)
    expiry_warning: Period = timedelta(days=30)


class AdministrationSection(_Section):
    host: str = "127.0.0.1"
    port: Port = 8444
    tokens: dict[str, Annotated[str, AfterValidator(_hash)]] = Field(default_factory=dict)
    """Name of an administrator -> scrypt hash of the token."""
    certificate: Path | None = None
    """With a certificate chain and a key (PEM) the administration speaks HTTPS."""
    key: Path | None = None

    @model_validator(mode="after")
    def _guarded(self) -> AdministrationSection:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key belong together")
        if self.certificate is None and not is_loopback(self.host):
            raise ValueError("without certificate and key the host must be a loopback address")
        return self


class JournalSection(ExportSection):
    retention: Period = timedelta(days=365)
    refused_connections: Annotated[int, Field(ge=1)] = 100
    """How many connections that were not let in are written down a minute; more are counted."""


class KeysSection(_Section):
    passphrase: SecretStr | None = None
    """Better given by the environment than in the file."""


class DirectoryConfiguration(WatchedConfiguration):
    """`gridpost directory run --config FILE`."""

    model_config = SettingsConfigDict(env_prefix="GRIDPOST_DIRECTORY_")

    component: Literal["component-directory"]
    code: Code
    home: Path
    """Folder of keys and data; readable by this service only."""
    roots: Annotated[tuple[Path, ...], Field(min_length=1)]
    """ROOT CA certificates (PEM) that are trusted; two while the ROOT CA is renewed."""
    contact: ContactSection
    server: ServerSection
    registration: RegistrationSection = RegistrationSection()
    synchronisation: SynchronisationSection = SynchronisationSection()
    certificates: CertificatesSection = CertificatesSection()
    administration: AdministrationSection = AdministrationSection()
    console: ConsoleSection | None = None
    journal: JournalSection = JournalSection()
    keys: KeysSection = KeysSection()
    store: Literal["sqlite", "postgres"] = "sqlite"
    postgres: PostgresSection | None = None
    standby: bool = False
    """Wait while another instance of this directory has the books, and serve after it."""

    @model_validator(mode="after")
    def _stored(self) -> DirectoryConfiguration:
        if self.standby and self.store != "postgres":
            raise ValueError('standby needs store = "postgres": a folder is of one machine')
        if (self.store == "postgres") != (self.postgres is not None):
            raise ValueError('store = "postgres" and the section [postgres] belong together')
        return self

    @model_validator(mode="after")
    def _peers(self) -> DirectoryConfiguration:
        codes = [peer.code for peer in self.synchronisation.peers]
        if len(set(codes)) != len(codes) or self.code in codes:
            raise ValueError("each peer is another component-directory, and named once")
        if self.synchronisation.cycle >= self.synchronisation.ttl:
            raise ValueError("synchronisation.cycle must be shorter than synchronisation.ttl")
        return self

    def passphrase(self) -> bytes | None:
        secret = self.keys.passphrase
        return None if secret is None else secret.get_secret_value().encode()

    def settings(self) -> DirectorySettings:
        contact = self.contact
        return DirectorySettings(
            code=ComponentCode(self.code),
            contact=Contact(contact.organization, contact.person, contact.email, contact.phone),
            urls=self.server.urls,
            ttl=self.synchronisation.ttl,
            cycle=self.synchronisation.cycle,
            certificate_validity=self.registration.certificate_validity,
            installation_validity=self.registration.installation_validity,
            published_after_expiry=self.certificates.published_after_expiry,
            expiry_warning=self.certificates.expiry_warning,
            extensions=self.registration.extensions,
            max_body=self.server.max_body,
            journal_retention=self.journal.retention,
            peers=tuple(
                Peer(
                    ComponentCode(peer.code),
                    peer.urls,
                    None if peer.integrated_ca is None else _one_certificate(peer.integrated_ca),
                )
                for peer in self.synchronisation.peers
            ),
        )

    def trusted_roots(self) -> tuple[bytes, ...]:
        return tuple(der for file in self.roots for der in read_certificates(file))


def read_directory_configuration(file: Path) -> DirectoryConfiguration:
    """Relative paths in the file count from its folder."""
    configuration = read_configuration(file, DirectoryConfiguration)
    folder = file.resolve().parent
    administration, postgres = configuration.administration, configuration.postgres
    peers = tuple(
        peer.model_copy(
            update={"integrated_ca": peer.integrated_ca and folder / peer.integrated_ca}
        )
        for peer in configuration.synchronisation.peers
    )
    return configuration.model_copy(
        update={
            "home": folder / configuration.home,
            "roots": tuple(folder / root for root in configuration.roots),
            "console": console_in(folder, configuration.console),
            **watched_in(folder, configuration),
            "synchronisation": configuration.synchronisation.model_copy(update={"peers": peers}),
            "postgres": postgres and postgres.beside(folder),
            "administration": administration.model_copy(
                update={
                    "certificate": administration.certificate
                    and folder / administration.certificate,
                    "key": administration.key and folder / administration.key,
                }
            ),
        }
    )


def read_certificates(file: Path) -> tuple[bytes, ...]:
    try:
        return from_pem(file.read_bytes())
    except OSError as error:
        raise Refusal(
            Rule.USAGE, f"{file} cannot be read: {error.strerror or type(error).__name__}"
        ) from None


def _one_certificate(file: Path) -> bytes:
    found = read_certificates(file)
    if len(found) != 1:
        raise Refusal(Rule.USAGE, f"{file} must hold one certificate, not {len(found)}")
    return found[0]
