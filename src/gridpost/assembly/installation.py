"""The file that an administrator hands to a new component (503 cl. 7.6), from an installation kit."""

from __future__ import annotations

from collections.abc import Callable

from gridpost.core.https import TlsCredentials
from gridpost.services.component_directory.papers import InstallationKit
from gridpost.services.component_directory.publication import Publication
from gridpost.wire.directory import InstallationBundle, encode_bundle
from gridpost.wire.x509 import KeyBundle, write_pkcs12


def packer(
    publication: Publication, credentials: Callable[[], TlsCredentials]
) -> Callable[[InstallationKit, str], bytes]:
    """`credentials` are those with which the directory answers, so that it is recognised."""

    def pack(kit: InstallationKit, password: str) -> bytes:
        settings, shown = publication.settings, credentials()
        opened = KeyBundle(kit.key.private_key, kit.certificate, (kit.issuer,), kit.invitation.code)
        return encode_bundle(
            InstallationBundle(
                kit.invitation.code,
                settings.code,
                settings.urls,
                shown.chain[0],
                shown.roots,
                write_pkcs12(opened, password),
            )
        )

    return pack
