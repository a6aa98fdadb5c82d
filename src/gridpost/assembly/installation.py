"""The file that an administrator hands to a new component (503 cl. 7.6).

One ZIP: the PKCS#12 with the installation key and certificate, and what a component must know
before its first request: the directory's code, its URLs and the trusted roots.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Sequence

from gridpost.services.component_directory.office import InstallationKit
from gridpost.services.component_directory.publication import Publication
from gridpost.wire.x509 import KeyBundle, to_pem, write_pkcs12


def packer(
    publication: Publication, roots: Callable[[], Sequence[bytes]]
) -> Callable[[InstallationKit, str], bytes]:
    def pack(kit: InstallationKit, password: str) -> bytes:
        settings = publication.settings
        bundle = KeyBundle(kit.key.private_key, kit.certificate, (kit.issuer,), kit.invitation.code)
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("installation.p12", write_pkcs12(bundle, password))
            archive.writestr("roots.pem", to_pem(*roots()))
            archive.writestr(
                "installation.json",
                json.dumps(
                    {
                        "code": kit.invitation.code,
                        "component_directory": settings.code,
                        "urls": list(settings.urls),
                        "expires_at": kit.invitation.expires_at.isoformat(),
                    },
                    indent=1,
                ),
            )
        return file.getvalue()

    return pack
