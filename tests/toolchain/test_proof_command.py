"""`gridpost proof verify`: what it says of evidence, to people and to programs, and its exit code."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from typer.testing import CliRunner

from gridpost.cli.proof import app
from gridpost.core.message import InternalType
from gridpost.core.proof_set import ProofSet
from gridpost.wire.proof_file import ProofFile, encode
from gridpost.wire.seal import fingerprint, sign
from gridpost.wire.x509 import to_pem
from support.messages import CONTENT, acknowledgement, message, metadata
from support.pki import TestPki, shared_pki
from support.sealing import e2

NOT_TRUSTED = "signature valid, issuer not trusted here"


def verify(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["verify", *map(str, words)])
    return result.exit_code, result.output


async def test_a_sender_with_a_certificate_of_an_external_ca_needs_trust_in_that(
    tmp_path: Path,
) -> None:
    """E1 signs with a certificate of its own choice, E2 with one of the system."""
    external, system = TestPki(root="EXTERNAL", directory="EXT"), shared_pki()
    sender = external.component("E1", key_name="E1 external")
    signed = await sign(message(), sender.signer)
    digest = fingerprint(signed.metadata, CONTENT)
    file, root, trust = (tmp_path / name for name in ("message.proof", "root.pem", "ext.pem"))
    evidence = ProofSet(
        signed,
        sender.signing,
        await sign(acknowledgement(base64.b64encode(digest)), e2().signer),
        e2().signing,
        acknowledgement(b"RECEIVED", internal_type=InternalType.RECEIVE_ACKNOWLEDGEMENT),
        (system.integrated_ca, external.integrated_ca),
    )
    file.write_bytes(encode(ProofFile(evidence, (system.root, external.root))))
    root.write_bytes(to_pem(system.root))
    trust.write_bytes(to_pem(external.root))

    code, said = verify(file, "--root", root, "--json")
    told = json.loads(said)
    # Origin decides; that E2 has it is proven all the same.
    assert (code, told["origin"]["standing"]) == (1, NOT_TRUSTED)
    assert told["receipt"]["standing"] == "proven"

    code, said = verify(file, "--root", root, "--trust", trust, "--json")
    told = json.loads(said)
    assert (code, told["origin"]["standing"], told["receipt"]["standing"]) == (
        0,
        "proven",
        "proven",
    )

    code, said = verify(file, "--root", root, "--trust", trust)
    assert code == 0
    assert digest.hex() in said
    assert f"E1 claims the time {metadata().generated}" in said
    assert "unsigned: E2 says an application took it at" in said
    code, said = verify(file)
    assert code == 1
    assert said.count(NOT_TRUSTED) == 2
