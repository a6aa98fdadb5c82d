"""A SoftHSM token of its own for a test run, and keys in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gridpost.stores.keys.pkcs11 import TokenAccess

PIN = "1234"
LABEL = "gridpost"
_MODULES = (
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
)


def module() -> str:
    """Skips the test when this machine has no SoftHSM or no python-pkcs11."""
    pytest.importorskip("pkcs11")
    found = next((path for path in _MODULES if Path(path).exists()), None)
    if found is None or not shutil.which("softhsm2-util"):
        pytest.skip("SoftHSM is not installed")
    return found


def configure(directory: Path, *options: str) -> Path:
    """A configuration file; the library reads it once, when it is loaded into a process."""
    tokens = directory / "tokens"
    tokens.mkdir(exist_ok=True)
    path = directory / "softhsm2.conf"
    lines = [f"directories.tokendir = {tokens}", "objectstore.backend = file", *options]
    path.write_text("\n".join(lines) + "\n")
    return path


def make_token(directory: Path) -> TokenAccess:
    """The library is told to look again: it lists tokens once, and another test may have loaded it."""
    access = TokenAccess(module(), LABEL, PIN)
    os.environ["SOFTHSM2_CONF"] = str(configure(directory))
    subprocess.run(
        [
            "softhsm2-util",
            "--init-token",
            "--free",
            "--label",
            LABEL,
            "--pin",
            PIN,
            "--so-pin",
            "5678",
        ],
        check=True,
        capture_output=True,
    )
    import pkcs11

    pkcs11.lib(access.module).reinitialize()
    return access


def put_keys(access: TokenAccess, keys: Iterable[rsa.RSAPrivateKey]) -> None:
    import pkcs11
    from pkcs11 import Attribute
    from pkcs11.util.rsa import decode_rsa_private_key

    token = pkcs11.lib(access.module).get_token(token_label=access.token)
    with token.open(rw=True, user_pin=access.pin) as session:
        for key in keys:
            der = key.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption())
            session.create_object(
                decode_rsa_private_key(der)
                | {
                    Attribute.TOKEN: True,
                    Attribute.PRIVATE: True,
                    Attribute.SENSITIVE: True,
                    Attribute.SIGN: True,
                    Attribute.DECRYPT: True,
                }
            )
