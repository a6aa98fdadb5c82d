"""Decides which documents may leave their names in the process for ever.

libxml2 keeps every element name, attribute name, namespace and run of blanks that a thread has
ever read in a table that lives as long as the thread, so hostile documents with ever new names
would fill the memory. A document is therefore read in the caller's thread only when nothing in it
is new there, and otherwise in a thread of its own that takes its table with it when it ends.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# Larger documents cost more to compare than a thread costs to start.
MAX_DOCUMENT = 64 * 1024
# What all known shapes together may add to the table of one thread.
MAX_TOTAL = 2 * 1024 * 1024

# Character data that libxml2 does not keep. A leading blank could be the start of a run of blanks,
# which it does keep, so such text stays part of the shape.
_TEXT = re.compile(rb">[^< \t\r\n][^<]*+")
# The value of an attribute, which libxml2 does not keep either; that of a namespace it does. No '<' or '>' is
# in it, so that a tag ends where it ended.
_VALUE = re.compile(
    rb"([ \t\r\n](?!xml)[^ \t\r\n=<>\"']++[ \t\r\n]*=[ \t\r\n]*)(?:\"[^\"<>]*+\"|'[^'<>]*+')"
)
# A reference to a declared entity: its name would be kept.
_ENTITY = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos|#[0-9]++|#x[0-9A-Fa-f]++);)")
# Only tags whose first '>' closes them: a '>' in an attribute could hide names behind it. Groups are atomic,
# not possessive: in the first releases of Python 3.11 a possessive match includes a repetition that began and
# did not end, such as an attribute up to its '>'.
_PLAIN = re.compile(
    rb"(?:<\?xml[^<>]*\?>)?"
    rb"(?>(?:[ \t\r\n]|<[^<>!?\"'][^<>\"']*+"
    rb"(?>(?:\"[^<>\"]*+\"[^<>\"']*+|'[^<>']*+'[^<>\"']*+)*)>)*)"
)


def shape_of(octets: bytes) -> bytes:
    """The document without its character data and the values of its attributes.

    Whatever has the same shape as a well-formed document has the same names in the same places, because
    only what stands between quotes, and between tags, differs. Empty for a document not to be remembered.
    """
    if len(octets) > MAX_DOCUMENT or _ENTITY.search(octets):
        return b""
    return _VALUE.sub(rb'\1""', _TEXT.sub(b">", octets))


_PIECES = re.compile(rb">([^< \t\r\n][^<]*+)")


def split_text(octets: bytes) -> tuple[bytes, list[bytes]]:
    """A shape that also says where texts were, and these texts in the order of the document.

    Their places are marked with a carriage return, so a document that has one has no such shape.
    """
    if len(octets) > MAX_DOCUMENT or b"&" in octets or b"\r" in octets:
        return b"", []
    pieces = _PIECES.split(octets)
    return b">\r".join(pieces[::2]), pieces[1::2]


class KnownShapes(Generic[T]):
    """The shapes of documents that proved good, each with what it proved good for.

    They are never forgotten, so they are limited.
    """

    def __init__(self, max_total: int = MAX_TOTAL) -> None:
        self._shapes: dict[bytes, T] = {}
        self._room = max_total
        self._lock = threading.Lock()

    def get(self, shape: bytes) -> T | None:
        return self._shapes.get(shape)

    def learn(self, shape: bytes, proof: T) -> None:
        if not shape or not _PLAIN.fullmatch(shape):
            return
        with self._lock:
            if shape not in self._shapes and len(shape) <= self._room:
                self._shapes[shape] = proof
                self._room -= len(shape)


class _Outcome(Generic[T]):
    """What a call in another thread came to."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.value: T | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.value = self._work()
        except BaseException as error:
            self.error = error


def in_own_thread(work: Callable[[], T]) -> T:
    outcome = _Outcome(work)
    thread = threading.Thread(target=outcome.run, name="xml-parse")
    thread.start()
    thread.join()
    if outcome.error is not None:
        raise outcome.error
    return outcome.value  # type: ignore[return-value]  # T itself may allow None
