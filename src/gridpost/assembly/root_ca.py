"""The offline ROOT CA: a folder with one key and one certificate, on a machine without a network.

503 cl. 8.3.2: it certifies INTEGRATED CAs and nothing else. A renewed ROOT CA is a new folder;
components trust both certificates until the last chain of the old one has ended (8.5).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.files import FileKeyring
from gridpost.wire.x509 import (
    Issuer,
    Validity,
    build_root_ca,
    from_pem,
    issue_integrated_ca,
    public_key,
    public_key_bytes,
    read_ca_request,
    to_pem,
)

ROOT_FILE = "root.pem"


def create_root(
    home: Path,
    name: str,
    organization: str,
    lasting: timedelta,
    at: datetime,
    passphrase: bytes | None,
) -> Path:
    file = home / ROOT_FILE
    if file.exists():
        raise Refusal(Rule.USAGE, f"{file} exists: a renewed ROOT CA needs a folder of its own")
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    ring = FileKeyring(home / "keys", passphrase)
    spki = ring.create_key(4096)
    root = build_root_ca(
        name, spki, ring.sign_function(spki), Validity.starting(at, lasting), organization
    )
    file.write_bytes(to_pem(root))
    return file


def sign_request(
    home: Path, request: bytes, lasting: timedelta, at: datetime, passphrase: bytes | None
) -> tuple[str, bytes]:
    """The name that was certified, and the INTEGRATED CA certificate in PEM."""
    file = home / ROOT_FILE
    try:
        (root,) = from_pem(file.read_bytes())
    except (OSError, ValueError):
        raise Refusal(Rule.USAGE, f"{file} is missing: run 'gridpost ca init' first") from None
    wanted = read_ca_request(request)
    ring = FileKeyring(home / "keys", passphrase)
    issuer = Issuer(root, ring.sign_function(public_key_bytes(public_key(root))))
    return wanted.name, to_pem(issue_integrated_ca(wanted, issuer, Validity.starting(at, lasting)))
