"""The installation bundle: the one file that a directory's administrator hands to a component's.

A ZIP archive with `bundle.toml` (form, code, directory, urls), `installation.p12` (the installation
certificate with its key and issuer, under a password told by another way), `directory.pem` (the
certificate that the directory shows on connections) and `roots.pem` (the ROOT CAs to trust).
503 cl. 7.6 names the contents and no form; one file cannot lose a part on its way.
"""

from __future__ import annotations

import io
import json
import tomllib
import zipfile
from dataclasses import dataclass, field

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.enrolment import Home
from gridpost.core.identifiers import ComponentCode, component_code
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509 import KeyBundle, from_pem, read_certificate, read_pkcs12, to_pem

FORM = 1
MAX_SIZE = 4 * 1024 * 1024
_MAX_PART = 1024 * 1024
_PARTS = ("bundle.toml", "installation.p12", "directory.pem", "roots.pem")
# A fixed time: the same bundle is the same bytes, and 1980 is the first year a ZIP file knows.
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class InstallationBundle:
    code: ComponentCode
    """The component that may register with it, and no other."""
    directory: ComponentCode
    urls: tuple[str, ...]
    """Primary, then secondary."""
    directory_certificate: bytes
    roots: tuple[bytes, ...]
    pkcs12: bytes = field(repr=False)

    def open(self, password: str) -> KeyBundle:
        """The installation key, its certificate and the INTEGRATED CA above it."""
        return read_pkcs12(self.pkcs12, password)

    def home(self, issuers: tuple[bytes, ...]) -> Home:
        """The directory as the bundle describes it; `issuers` come with the installation key."""
        authority = CertificateKind.INTEGRATED_CA
        return Home(
            self.directory,
            self.urls,
            (
                read_certificate(self.directory_certificate, CertificateKind.AUTHENTICATION),
                *(read_certificate(der, authority) for der in issuers if der not in self.roots),
            ),
            self.roots,
        )


def installation_certificate(opened: KeyBundle) -> Certificate:
    return read_certificate(opened.certificate, CertificateKind.AUTHENTICATION)


def encode_bundle(bundle: InstallationBundle) -> bytes:
    # JSON strings and arrays of strings are TOML as well.
    text = (
        f"form = {FORM}\n"
        f"code = {json.dumps(bundle.code)}\n"
        f"directory = {json.dumps(bundle.directory)}\n"
        f"urls = {json.dumps(list(bundle.urls))}\n"
    )
    contents = (
        text.encode(),
        bundle.pkcs12,
        to_pem(bundle.directory_certificate),
        to_pem(*bundle.roots),
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in zip(_PARTS, contents, strict=True):
            archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def decode_bundle(data: bytes) -> InstallationBundle:
    if len(data) > MAX_SIZE:
        raise _unusable("it is larger than any real one")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            parts = [_part(archive, name) for name in _PARTS]
        head = tomllib.loads(parts[0].decode())
    except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, NotImplementedError) as error:
        raise _unusable(str(error)) from error
    if head.get("form") != FORM:
        raise _unusable(f"its form {head.get('form')!r} is not {FORM}: use a newer Gridpost")
    urls = head.get("urls")
    if not isinstance(urls, list) or not urls or not all(isinstance(u, str) for u in urls):
        raise _unusable("it names no URL of the directory")
    directory = from_pem(parts[2])
    return InstallationBundle(
        component_code(str(head.get("code", ""))),
        component_code(str(head.get("directory", ""))),
        tuple(urls),
        directory[0],
        from_pem(parts[3]),
        parts[1],
    )


def _part(archive: zipfile.ZipFile, name: str) -> bytes:
    if archive.getinfo(name).file_size > _MAX_PART:
        raise ValueError(f"{name} is larger than any real one")
    with archive.open(name) as file:
        content = file.read(_MAX_PART + 1)
    if len(content) > _MAX_PART:
        raise ValueError(f"{name} is larger than any real one")
    return content


def _unusable(reason: str) -> Refusal:
    return Refusal(Rule.BAD_KEY, f"the installation bundle cannot be used: {reason}")
