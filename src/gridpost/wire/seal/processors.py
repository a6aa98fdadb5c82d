"""The processors `signature` and `encryption` in the metadata (503 Tables 9, 10 and 14).

Decides which processors a kind of message must, may and must not have, and reads what they say
without acting on it. Everything refused here stands in the open metadata; nothing of it depends on
a private key, so the peer may know the reason.
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass

from gridpost.core.identifiers import clip
from gridpost.core.message import (
    COMPRESSOR,
    ENCRYPTION,
    SIGNATURE,
    Entry,
    InternalType,
    Metadata,
    Processor,
    ValueType,
)
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import MADES_1
from gridpost.wire.seal.profile import Profile
from gridpost.wire.seal.registry import ContentCipher, KeyPadding, Registry, SignatureAlgorithm

ALGORITHM = "Algorithm"
CERTIFICATE_ID = "Certificate ID"
SIGNATURE_TEXT = "Signature"
CIPHER = "Cipher"
SESSION_KEY = "Session key"
# REPAIRS 6.5.3: not in Table 9.
MODE = "Mode"
PADDING = "Padding"

# The longest RSA key gives 684 characters of base64; some peers break lines.
MAX_SESSION_KEY_TEXT = 4096


@dataclass(frozen=True, slots=True)
class SignatureData:
    """503 Table 10."""

    algorithm: SignatureAlgorithm
    certificate_id: str
    text: str


@dataclass(frozen=True, slots=True)
class EncryptionData:
    """503 Table 9 and the entries of ours. `session_key` is empty when it was not base64."""

    cipher: ContentCipher
    padding: KeyPadding
    certificate_id: str
    session_key: bytes


@dataclass(frozen=True, slots=True)
class Seals:
    """What the metadata says was done to a message."""

    signature: SignatureData | None
    encryption: EncryptionData | None


def signature_processor(data: SignatureData) -> Processor:
    return Processor(
        SIGNATURE,
        (
            Entry(ALGORITHM, ValueType.STRING, data.algorithm.name),
            Entry(CERTIFICATE_ID, ValueType.STRING, data.certificate_id),
            Entry(SIGNATURE_TEXT, ValueType.STRING, data.text),
        ),
    )


def encryption_processor(data: EncryptionData, *, announce: bool) -> Processor:
    wrapped = binascii.b2a_base64(data.session_key, newline=False).decode("ascii")
    entries = [
        Entry(CIPHER, ValueType.STRING, data.cipher.cipher),
        Entry(CERTIFICATE_ID, ValueType.STRING, data.certificate_id),
        Entry(SESSION_KEY, ValueType.BYTE_ARRAY, wrapped),
    ]
    if announce:
        entries.append(Entry(MODE, ValueType.STRING, data.cipher.mode))
        entries.append(Entry(PADDING, ValueType.STRING, data.padding.name))
    return Processor(ENCRYPTION, tuple(entries))


def read_seals(metadata: Metadata, profile: Profile, registry: Registry) -> Seals:
    """What must be there is there once, and everything named is known and enabled."""
    signature, encryption = _processors(metadata)
    kind = metadata.internal_type
    if signature is None and kind.must_be_signed:
        raise Refusal(Rule.SEAL_SIGNATURE_MISSING, f"a {kind} must be signed")
    if encryption is None and kind.must_be_encrypted:
        raise Refusal(Rule.SEAL_ENCRYPTION_MISSING, f"a {kind} must be encrypted")
    if encryption is not None and not kind.may_be_encrypted:
        raise Refusal(Rule.SEAL_PROCESSOR_NOT_ALLOWED, f"a {kind} must not be encrypted")
    return Seals(
        None if signature is None else _signature_data(signature, profile, registry),
        None if encryption is None else _encryption_data(encryption, profile, registry),
    )


def read_signature(metadata: Metadata, profile: Profile, registry: Registry) -> SignatureData:
    """Of a message that can be read already, whether it once was encrypted or not."""
    signature, _ = _processors(metadata)
    if signature is None:
        raise Refusal(Rule.SEAL_SIGNATURE_MISSING, f"this {metadata.internal_type} is not signed")
    return _signature_data(signature, profile, registry)


def must_not_be_encrypted(kind: InternalType) -> Refusal:
    return Refusal(Rule.SEAL_PROCESSOR_NOT_ALLOWED, f"a {kind} is never encrypted")


def _processors(metadata: Metadata) -> tuple[Processor | None, Processor | None]:
    found: dict[str, Processor] = {}
    for processor in metadata.processors:
        name = processor.processor_id
        old = metadata.message_mversion == MADES_1 and name == COMPRESSOR
        if name not in (SIGNATURE, ENCRYPTION) and not old:
            raise Refusal(
                Rule.SEAL_PROCESSOR_UNKNOWN, f"the processor '{clip(name)}' is not known here"
            )
        if name in found:
            raise Refusal(Rule.SEAL_PROCESSOR_REPEATED, f"there are two processors '{name}'")
        found[name] = processor
    return found.get(SIGNATURE), found.get(ENCRYPTION)


def _signature_data(processor: Processor, profile: Profile, registry: Registry) -> SignatureData:
    name = _entry(processor, ALGORITHM, ValueType.STRING)
    algorithm = registry.signature(name)
    profile.check_received(profile.signatures, "signature algorithm", name)
    return SignatureData(
        algorithm,
        _entry(processor, CERTIFICATE_ID, ValueType.STRING),
        _entry(processor, SIGNATURE_TEXT, ValueType.STRING),
    )


def _encryption_data(processor: Processor, profile: Profile, registry: Registry) -> EncryptionData:
    cipher_name = _entry(processor, CIPHER, ValueType.STRING)
    mode = _optional(processor, MODE, profile.default_mode)
    padding_name = _optional(processor, PADDING, profile.default_padding)
    cipher = registry.cipher(cipher_name, mode)
    padding = registry.padding(padding_name)
    profile.check_received(profile.ciphers, "cipher", cipher_name)
    profile.check_received(profile.modes, "mode", mode)
    profile.check_received(profile.paddings, "padding", padding_name)
    return EncryptionData(
        cipher,
        padding,
        _entry(processor, CERTIFICATE_ID, ValueType.STRING),
        _base64(_entry(processor, SESSION_KEY, ValueType.BYTE_ARRAY)),
    )


def _entry(processor: Processor, key: str, kind: ValueType) -> str:
    found = processor.all(key)
    if len(found) != 1 or found[0].type is not kind:
        raise Refusal(
            Rule.SEAL_ENTRY_MISSING,
            f"the processor '{processor.processor_id}' must have one entry '{key}' of type {kind}",
        )
    return found[0].value


def _optional(processor: Processor, key: str, default: str) -> str:
    return _entry(processor, key, ValueType.STRING) if processor.all(key) else default


def _base64(text: str) -> bytes:
    if len(text) > MAX_SESSION_KEY_TEXT:
        return b""
    try:
        return binascii.a2b_base64("".join(text.split()).encode("ascii"), strict_mode=True)
    except ValueError:
        return b""
