"""Signatures of SOAP bodies against Apache WSS4J: each side reads what the other one signed."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lxml import etree

from gridpost.core.refusal import Refusal, Rule
from gridpost.envelope import Sender
from gridpost.wire.envelope import element_text
from gridpost.wire.soap.security import BodyVerifier
from gridpost.wire.x509.chain import trusted_path
from interop.test_jms import compiled, run, write_key_store, write_trust_store
from support.papers import Paper, paper
from support.soap import envelope

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("mvn", "javac", "java")),
    reason="Maven or a JDK is missing",
)


def soap(version: str) -> bytes:
    request = Sender("EMS", "TESTING").request("get", "Notes", ids=["a"])
    return envelope(version, element_text(request)).encode()


def verifier(root: Paper) -> BodyVerifier:
    def trust(der: bytes) -> None:
        roots = [root.der]
        trusted_path(der, roots, roots, datetime.now(UTC))

    return BodyVerifier(trust, lambda: datetime.now(UTC))


@pytest.mark.timeout(400)
@pytest.mark.req("100-9-b", component="transport")
async def test_bodies_that_we_sign_are_good_for_wss4j_and_the_other_way_round(
    tmp_path: Path,
) -> None:
    java = await compiled(tmp_path, "BodySignature", "wss4j")
    root = paper("Root")
    known = paper("EMS", root)
    write_key_store(tmp_path / "own.p12", known.key, known.certificate, root.certificate)
    write_trust_store(tmp_path / "trust.p12", root.certificate)

    async def wss4j(what: str, *messages: bytes) -> tuple[list[str], list[bytes]]:
        files = [tmp_path / f"{what}-{n}.xml" for n in range(len(messages))]
        for file, message in zip(files, messages, strict=True):
            file.write_bytes(message)
        arguments = (what, str(tmp_path), *map(str, files))
        code, said = await run(*java, *arguments, cwd=tmp_path, seconds=120)
        assert code == 0, said
        return said.splitlines(), [file.read_bytes() for file in files]

    ours = [known.signer().sign(soap(version)) for version in ("1.1", "1.2")]
    stranger = paper("EMS", paper("Root")).signer().sign(soap("1.1"))
    said, _ = await wss4j("verify", *ours, ours[0].replace(b">get<", b">got<"), stranger)
    assert said[:3] == ["good [Body, Timestamp] CN=EMS"] * 2 + ["refused FAILED_CHECK"]
    assert said[3].startswith("refused ")

    _, theirs = await wss4j("sign", soap("1.1"), soap("1.2"))
    for message in theirs:
        assert verifier(root).verify(etree.fromstring(message)) == known.der
        with pytest.raises(Refusal) as refused:
            verifier(root).verify(etree.fromstring(message.replace(b">get<", b">got<")))
        assert refused.value.rule is Rule.BAD_SIGNATURE_OF_BODY
        with pytest.raises(Refusal):
            verifier(paper("Root")).verify(etree.fromstring(message))
