"""Our seals, checked by tools that know nothing of Gridpost."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from lxml import etree

from gridpost.core.certificate import CertificateKind
from gridpost.core.message import ENCRYPTION, SIGNATURE
from gridpost.wire.seal import DEFAULT, Profile, associated_data, manifest
from gridpost.wire.x509 import to_pem
from support.messages import CONTENT, metadata
from support.pki import shared_pki
from support.sealing import OLD, e1, e2, entry, opened, sealed, with_entry

XMLDSIG = "{http://www.w3.org/2000/09/xmldsig#}"

needs_openssl = pytest.mark.skipif(not shutil.which("openssl"), reason="no openssl here")
needs_java = pytest.mark.skipif(not shutil.which("javac"), reason="no Java here")


def openssl(*arguments: str | Path) -> bytes:
    return subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True).stdout


def java(*arguments: str | Path) -> bytes:
    return subprocess.run(["java", *map(str, arguments)], check=True, capture_output=True).stdout


def private_pem(path: Path, kind: CertificateKind) -> Path:
    pem = e2().keys[kind].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(pem)
    return path


@needs_openssl
async def test_openssl_verifies_the_signature_value_over_the_canonical_signed_info(
    tmp_path: Path,
) -> None:
    document = etree.fromstring(entry(await sealed(), SIGNATURE, "Signature").encode())
    info = etree.fromstring(etree.tostring(document.find(f"{XMLDSIG}SignedInfo")))
    (tmp_path / "info").write_bytes(etree.tostring(info, method="c14n"))
    value = base64.b64decode(document.findtext(f"{XMLDSIG}SignatureValue") or "")
    (tmp_path / "value").write_bytes(value)
    (tmp_path / "e1.pem").write_bytes(to_pem(e1().signing.der))
    public = openssl("x509", "-in", tmp_path / "e1.pem", "-pubkey", "-noout")
    (tmp_path / "public.pem").write_bytes(public)
    arguments = ["-sha512", "-verify", tmp_path / "public.pem", "-signature", tmp_path / "value"]
    assert b"Verified OK" in openssl("dgst", *arguments, tmp_path / "info")
    digest = document.findtext(f".//{XMLDSIG}DigestValue")
    (tmp_path / "manifest").write_bytes(manifest(metadata(), CONTENT))
    assert base64.b64decode(digest or "") == openssl(
        "dgst", "-sha512", "-binary", tmp_path / "manifest"
    )


@needs_openssl
@pytest.mark.parametrize("profile", [DEFAULT, OLD], ids=["OAEP", "PKCS1"])
async def test_openssl_opens_the_session_key(tmp_path: Path, profile: Profile) -> None:
    transfer = await sealed(profile)
    (tmp_path / "wrapped").write_bytes(base64.b64decode(entry(transfer, ENCRYPTION, "Session key")))
    key = private_pem(tmp_path / "e2.key", CertificateKind.ENCRYPTION)
    options = ["-pkeyopt", "rsa_padding_mode:pkcs1"]
    if profile is DEFAULT:
        options = ["-pkeyopt", "rsa_padding_mode:oaep", "-pkeyopt", "rsa_oaep_md:sha256"]
        options += ["-pkeyopt", "rsa_mgf1_md:sha256"]
    session = openssl("pkeyutl", "-decrypt", "-inkey", key, *options, "-in", tmp_path / "wrapped")
    assert len(session) == 32
    if profile is OLD:
        (tmp_path / "body").write_bytes(transfer.body[16:])
        aes = ["enc", "-d", "-aes-256-cbc", "-K", session.hex(), "-iv", transfer.body[:16].hex()]
        assert openssl(*aes, "-in", tmp_path / "body") == CONTENT


@needs_openssl
def test_openssl_verifies_our_chains(tmp_path: Path) -> None:
    (tmp_path / "root.pem").write_bytes(to_pem(shared_pki().root))
    (tmp_path / "ca.pem").write_bytes(to_pem(shared_pki().integrated_ca))
    (tmp_path / "leaf.pem").write_bytes(to_pem(e1().authentication.der))
    at = str(int(shared_pki().now.timestamp()))
    chain = ["-CAfile", tmp_path / "root.pem", "-untrusted", tmp_path / "ca.pem"]
    for purpose in ("sslclient", "sslserver"):
        arguments = ["-x509_strict", "-attime", at, "-purpose", purpose, *chain]
        assert b"OK" in openssl("verify", *arguments, tmp_path / "leaf.pem")


JAVA = """
import java.nio.file.*; import java.security.*; import java.security.cert.*;
import java.security.spec.*; import java.io.*; import java.util.Base64;
import javax.crypto.*; import javax.crypto.spec.*;
class Peer { public static void main(String[] a) throws Exception {
  Path d = Path.of(a[0]);
  var pem = Files.readString(d.resolve("e2.key")).replaceAll("-----[^-]+-----|\\\\s", "");
  var key = KeyFactory.getInstance("RSA").generatePrivate(
      new PKCS8EncodedKeySpec(Base64.getDecoder().decode(pem)));
  // Open what Gridpost sealed: OAEP with SHA-256 twice, then AES-256-GCM.
  var rsa = Cipher.getInstance("RSA/ECB/OAEPPadding");
  rsa.init(Cipher.DECRYPT_MODE, key, new OAEPParameterSpec("SHA-256", "MGF1",
      MGF1ParameterSpec.SHA256, PSource.PSpecified.DEFAULT));
  var session = new SecretKeySpec(rsa.doFinal(Files.readAllBytes(d.resolve("wrapped"))), "AES");
  var body = Files.readAllBytes(d.resolve("body"));
  var aes = Cipher.getInstance("AES/GCM/NoPadding");
  aes.init(Cipher.DECRYPT_MODE, session, new GCMParameterSpec(128, body, 0, 12));
  aes.updateAAD(Files.readAllBytes(d.resolve("associated")));
  Files.write(d.resolve("clear"), aes.doFinal(body, 12, body.length - 12));
  // Wrap the same session key as Java does by default: MGF1 with SHA-1.
  var c = CertificateFactory.getInstance("X.509").generateCertificate(
      new FileInputStream(d.resolve("e2.der").toFile()));
  var plain = Cipher.getInstance("RSA/ECB/OAEPWithSHA-256AndMGF1Padding");
  plain.init(Cipher.ENCRYPT_MODE, c.getPublicKey());
  Files.write(d.resolve("rewrapped"), plain.doFinal(session.getEncoded()));
  // Verify the signature value over the canonical SignedInfo.
  var e1 = CertificateFactory.getInstance("X.509").generateCertificate(
      new FileInputStream(d.resolve("e1.der").toFile()));
  var s = Signature.getInstance("SHA512withRSA");
  s.initVerify(e1.getPublicKey());
  s.update(Files.readAllBytes(d.resolve("info")));
  System.out.print(s.verify(Files.readAllBytes(d.resolve("value"))));
} }
"""


@needs_java
async def test_java_opens_our_messages_and_we_open_what_java_wraps(tmp_path: Path) -> None:
    transfer = await sealed()
    document = etree.fromstring(entry(transfer, SIGNATURE, "Signature").encode())
    info = etree.fromstring(etree.tostring(document.find(f"{XMLDSIG}SignedInfo")))
    private_pem(tmp_path / "e2.key", CertificateKind.ENCRYPTION)
    files = {
        "wrapped": base64.b64decode(entry(transfer, ENCRYPTION, "Session key")),
        "body": transfer.body,
        "associated": associated_data(transfer.metadata),
        "e1.der": e1().signing.der,
        "e2.der": e2().encryption.der,
        "info": etree.tostring(info, method="c14n"),
        "value": base64.b64decode(document.findtext(f"{XMLDSIG}SignatureValue") or ""),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "Peer.java").write_text(JAVA)
    assert java(tmp_path / "Peer.java", tmp_path) == b"true"
    assert (tmp_path / "clear").read_bytes() == CONTENT
    rewrapped = base64.b64encode((tmp_path / "rewrapped").read_bytes()).decode()
    foreign = with_entry(transfer, ENCRYPTION, "Session key", rewrapped)
    foreign = with_entry(foreign, ENCRYPTION, "Padding", "OAEP-SHA256-MGF1-SHA1")
    assert (await opened(foreign)).message.content == CONTENT
    assert (
        hashlib.sha512(manifest(metadata(), CONTENT)).digest()
        == (await opened(foreign)).fingerprint
    )
