"""File names of the shared folders (503 Tables 48 and 49): what they say, and how they are made.

A name that came from outside is judged here; a name that goes out is made from tokens that cannot
lead out of their folder, whatever a peer has written into its metadata.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from gridpost.core.identifiers import clip
from gridpost.core.message import Metadata
from gridpost.core.refusal import Refusal, Rule

MAX_OUT_NAME = 200
"""503 cl. 11.2.2, in characters."""
MAX_NAME_OCTETS = 255
"""What file systems take; our own names stay below it."""
TEMPORARY = ("TMP", "tmp")
LOG = ".log"
REASON = ".reason"

_OUT = re.compile(
    r"(?P<application>[A-Za-z0-9-]*)_(?P<receiver>[A-Za-z0-9@-]+)_(?P<type>[A-Za-z0-9-]+)"
    r"_(?P<ba_id>[A-Za-z0-9-]*)(?:\.(?P<extension>[A-Za-z0-9-]+))?",
    re.ASCII,
)
_FOREIGN = re.compile(r"[^A-Za-z0-9-]", re.ASCII)
_FOREIGN_CODE = re.compile(r"[^A-Za-z0-9@-]", re.ASCII)


@dataclass(frozen=True, slots=True)
class OutName:
    """What the name of a file to be sent says."""

    sender_application: str
    receiver_code: str
    message_type: str
    ba_message_id: str
    extension: str = ""

    def __str__(self) -> str:
        dotted = f".{self.extension}" if self.extension else ""
        return (
            f"{self.sender_application}_{self.receiver_code}_{self.message_type}"
            f"_{self.ba_message_id}{dotted}"
        )


def is_temporary(name: str) -> bool:
    """503 cl. 11.2.3: its writer has not finished; every reader leaves it alone."""
    _, dot, extension = name.rpartition(".")
    return bool(dot) and extension in TEMPORARY


def read_out_name(name: str) -> OutName:
    if len(name) > MAX_OUT_NAME:
        raise Refusal(
            Rule.BAD_FILE_NAME,
            f"the file name has {len(name)} characters; {MAX_OUT_NAME} are allowed",
        )
    found = _OUT.fullmatch(name)
    if found is None:
        raise Refusal(
            Rule.BAD_FILE_NAME,
            f"'{clip(name)}' is not the name of a file to be sent",
            "write <SenderApp>_<Recipient>_<MessType>_<BAmessageID>.<Ext>, each of letters, "
            "digits and hyphens; without an extension there is no dot",
        )
    return OutName(
        found["application"],
        found["receiver"],
        found["type"],
        found["ba_id"],
        found["extension"] or "",
    )


def in_name(metadata: Metadata, default_extension: str = "") -> str:
    """The name of a received file: always the same for the same message."""
    extension = _FOREIGN.sub("-", metadata.extension)
    if not extension or extension in TEMPORARY:
        # A document with this extension would never be read (divergences, 11.2.4).
        extension = default_extension
    tail = f"_{metadata.message_id}" + (f".{extension}" if extension else "")
    fixed = f"_{_FOREIGN_CODE.sub('-', metadata.sender_code)}_{metadata.message_type}_"
    application = _FOREIGN.sub("-", metadata.sender_application)
    ba_id = _FOREIGN.sub("-", metadata.ba_message_id)
    # The temporary name is the longest that is ever used.
    room = MAX_NAME_OCTETS - len(".tmp") - len(fixed) - len(tail)
    if room < 0:
        raise Refusal(
            Rule.BAD_FILE_NAME,
            f"message {metadata.message_id} has a sender code and a message-type that are too "
            "long together for a file name",
        )
    if len(application) + len(ba_id) > room:
        application = application[: room // 2]
        ba_id = ba_id[: room - len(application)]
    return f"{application}{fixed}{ba_id}{tail}"


def temporary_name(name: str) -> str:
    """Where a received file grows: the extension becomes tmp."""
    stem, dot, _ = name.rpartition(".")
    return (stem if dot else name) + ".tmp"


def log_name(out_name: str, count: int = 0) -> str:
    """The log of a sent file; from the second of the same name on with a counter."""
    return f"{out_name}.{count}{LOG}" if count else out_name + LOG


def error_name(name: str, count: int = 0) -> str:
    """The name in OUT_ERROR: unchanged if it is free, else with a counter before the extension."""
    if not count:
        return name
    stem, dot, extension = name.rpartition(".")
    if not dot:
        stem, extension = name, ""
    tail = f".{count}{dot}{extension}"
    return clip_octets(stem, MAX_NAME_OCTETS - len(os.fsencode(tail))) + tail


def reason_name(name: str) -> str:
    return clip_octets(name, MAX_NAME_OCTETS - len(REASON)) + REASON


def clip_octets(name: str, limit: int) -> str:
    return os.fsdecode(os.fsencode(name)[: max(0, limit)])


def printable(name: str) -> str:
    """A name as logs can hold it, whatever octets it is made of."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
