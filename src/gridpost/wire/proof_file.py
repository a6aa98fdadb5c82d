"""The proof of one message as one file that needs nothing else to be checked (503 cl. 4.5.4).

A ZIP archive: `proof.json` (form and index), `document` (the clear content), the metadata with the
signatures (`message.xml`, `acknowledgement.xml`, `receive-acknowledgement.xml`), what the
acknowledgements say (`*.content`), certificates (`sender.pem`, `recipient.pem`, `issuers.pem`,
`roots.pem`) and the directory entries that were used (`directory/*.xml`). Every part can be looked
at with common tools; whether it proves anything is decided in `wire.seal.proof`.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.message import InternalMessage
from gridpost.core.proof_set import ProofSet
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.mades import metadata as metadata_form
from gridpost.wire.x509 import from_pem, read_certificate, to_pem

FORM = 1
MAX_DOCUMENT = 1024 * 1024 * 1024
_MAX_PART = 16 * 1024 * 1024
_MAX_PARTS = 100
# A fixed time: the same proof is the same bytes, and 1980 is the first year a ZIP file knows.
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class DirectoryEntry:
    """An entry as it was published when the proof was collected."""

    code: str
    component_directory: str
    content_id: str
    """503 cl. 7.7.2: of the subsystem that it was part of."""
    document: bytes


@dataclass(frozen=True, slots=True)
class ProofFile:
    proof: ProofSet
    roots: tuple[bytes, ...] = ()
    """The ROOT CAs of the exporter. A verifier trusts its own, never these."""
    entries: tuple[DirectoryEntry, ...] = ()


def encode(file: ProofFile) -> bytes:
    proof = file.proof
    index: dict[str, Any] = {
        "form": FORM,
        "messageID": proof.message.metadata.message_id,
        "sender": proof.message.metadata.sender_code,
        "receiver": proof.message.metadata.receiver_code,
        "certificateIDs": {
            name: certificate.certificate_id
            for name, certificate in (
                ("sender", proof.sender_certificate),
                ("recipient", proof.recipient_certificate),
            )
            if certificate is not None
        },
        # MADES 1.1 cl. 3.14.3 signs them; the metadata of 503 has no such field.
        "senderDescriptions": {
            name: message.metadata.sender_description
            for name, message in _messages(proof)
            if message.metadata.sender_description
        },
        "directory": [
            {
                "file": f"directory/{number}.xml",
                "code": entry.code,
                "componentDirectory": entry.component_directory,
                "contentID": entry.content_id,
            }
            for number, entry in enumerate(file.entries)
        ],
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        parts = {"proof.json": json.dumps(index, indent=1).encode(), **dict(_parts(file))}
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _messages(proof: ProofSet) -> Iterator[tuple[str, InternalMessage]]:
    for name, message in (
        ("message", proof.message),
        ("acknowledgement", proof.acknowledgement),
        ("receive-acknowledgement", proof.receive_acknowledgement),
    ):
        if message is not None:
            yield name, message


def _parts(file: ProofFile) -> Iterator[tuple[str, bytes]]:
    proof = file.proof
    yield "document", proof.message.content
    for name, message in _messages(proof):
        yield f"{name}.xml", metadata_form.encode(message.metadata).encode()
        if message is not proof.message:
            yield f"{name}.content", message.content
    for name, certificate in (
        ("sender", proof.sender_certificate),
        ("recipient", proof.recipient_certificate),
    ):
        if certificate is not None:
            yield f"{name}.pem", to_pem(certificate.der)
    if proof.issuers:
        yield "issuers.pem", to_pem(*proof.issuers)
    if file.roots:
        yield "roots.pem", to_pem(*file.roots)
    for number, entry in enumerate(file.entries):
        yield f"directory/{number}.xml", entry.document


def decode(data: bytes) -> ProofFile:
    """A file from anybody: sizes are checked before anything is unpacked."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if len(archive.infolist()) > _MAX_PARTS:
                raise _unusable(f"it has more than {_MAX_PARTS} parts")
            return _read(archive)
    except (
        zipfile.BadZipFile,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise _unusable(str(error)) from error


def _read(archive: zipfile.ZipFile) -> ProofFile:
    index = json.loads(_part(archive, "proof.json"))
    if index.get("form") != FORM:
        raise _unusable(f"its form {index.get('form')!r} is not {FORM}: use a newer Gridpost")
    names = set(archive.namelist())
    ids = index.get("certificateIDs", {})
    descriptions = index.get("senderDescriptions", {})

    def message(name: str, content: bytes) -> InternalMessage:
        found = metadata_form.decode(_part(archive, f"{name}.xml"))
        described = replace(found, sender_description=str(descriptions.get(name, "")))
        return InternalMessage(described, content)

    def acknowledgement(name: str) -> InternalMessage | None:
        if f"{name}.xml" not in names:
            return None
        return message(name, _part(archive, f"{name}.content"))

    def certificate(name: str) -> Certificate | None:
        if f"{name}.pem" not in names:
            return None
        (der,) = from_pem(_part(archive, f"{name}.pem"))
        return read_certificate(der, CertificateKind.SIGNING, str(ids.get(name, "")))

    def several(name: str) -> tuple[bytes, ...]:
        return from_pem(_part(archive, name)) if name in names else ()

    proof = ProofSet(
        message("message", _part(archive, "document", MAX_DOCUMENT)),
        certificate("sender"),
        acknowledgement("acknowledgement"),
        certificate("recipient"),
        acknowledgement("receive-acknowledgement"),
        several("issuers.pem"),
    )
    entries = tuple(
        DirectoryEntry(
            str(line["code"]),
            str(line["componentDirectory"]),
            str(line["contentID"]),
            _part(archive, str(line["file"])),
        )
        for line in index.get("directory", [])
    )
    return ProofFile(proof, several("roots.pem"), entries)


def _part(archive: zipfile.ZipFile, name: str, limit: int = _MAX_PART) -> bytes:
    if archive.getinfo(name).file_size > limit:
        raise _unusable(f"{name} is larger than {limit} bytes")
    with archive.open(name) as part:
        content = part.read(limit + 1)
    if len(content) > limit:
        raise _unusable(f"{name} is larger than it says")
    return content


def _unusable(reason: str) -> Refusal:
    return Refusal(Rule.BAD_VALUE, f"the proof file cannot be read: {reason}")
