"""Requests over the wire that no honest client sends, from a seed: bad framing, odd words, broken XML.

Each is bytes for a TLS connection. They are made from the valid requests of the API, changed in one
way or in several, so that some of them get far.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

METHODS = [
    "GET",
    "PUT",
    "POST",
    "DELETE",
    "PATCH",
    "HEAD",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "BREW",
    "get",
]
SEGMENTS = [
    "api",
    "v1",
    "v2",
    "registrations",
    "endpoints",
    "brokers",
    "components",
    "E1",
    "E2",
    "CD-1",
]
ODD_SEGMENTS = [
    "..",
    ".",
    "%2e%2e",
    "%00",
    "%ff",
    "*",
    "",
    "a" * 900,
    "E1%2f..",
    "%c3%a9",
    ";x=1",
    "%",
]
MEDIA = [
    "application/xml",
    "text/xml; charset=utf-16",
    "application/json",
    "",
    "application/xml;;",
    "x",
]


@dataclass(frozen=True)
class Template:
    method: str
    path: str
    body: bytes


@dataclass(frozen=True)
class Case:
    """What goes over the wire, in the pieces in which it is sent."""

    pieces: tuple[bytes, ...]
    method: str
    complete: bool
    """Whether the server has all that it was promised, and so has to answer."""


class RequestFuzz:
    def __init__(self, templates: Sequence[Template], seed: int) -> None:
        self._templates = templates
        self._chance = random.Random(seed)

    def case(self) -> Case:
        chance = self._chance
        if chance.random() < 0.05:
            noise = chance.randbytes(chance.randrange(1, 3000)) + b"\r\n\r\n"
            return Case((noise,), "GET", complete=False)
        template = chance.choice(self._templates)
        method = template.method if chance.random() < 0.85 else chance.choice(METHODS)
        target = template.path if chance.random() < 0.8 else self._target()
        body = template.body if chance.random() < 0.3 else self._body(template.body)
        headers = [b"Host: directory", b"Content-Type: " + self._media().encode()]
        framing, complete = self._framing(body)
        headers += framing[0]
        for change in chance.sample(HEADER_CHANGES, chance.choice([0, 0, 0, 0, 0, 1, 1, 2])):
            change(chance, headers)
            # Whether a request with such a header has an end is for the server to say.
            complete = False
        version = (
            "HTTP/1.1"
            if chance.random() < 0.93
            else chance.choice(
                ["HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/1.1 ", "HTTP/11", "HTP/1.1", ""]
            )
        )
        if version != "HTTP/1.1":
            complete = False
        line = f"{method} {target} {version}".encode("utf-8", "surrogateescape")
        head = b"\r\n".join([line, *headers]) + b"\r\n\r\n"
        return Case(self._pieces(head + framing[1]), method, complete)

    def _target(self) -> str:
        chance = self._chance
        kind = chance.random()
        if kind < 0.1:
            return chance.choice(
                ["*", "https://elsewhere.example/api/v1/components", "//", "?", "api"]
            )
        parts = [
            chance.choice(SEGMENTS if chance.random() < 0.8 else ODD_SEGMENTS)
            for _ in range(chance.randrange(1, 6))
        ]
        query = chance.choice(["", "", "?x=1", "?" + "q" * 2000, "#f"])
        return "/" + "/".join(parts) + query

    def _media(self) -> str:
        return MEDIA[0] if self._chance.random() < 0.75 else self._chance.choice(MEDIA)

    def _body(self, body: bytes) -> bytes:
        chance = self._chance
        for _ in range(chance.choice([1, 1, 1, 2, 5])):
            body = chance.choice(BODY_CHANGES)(chance, body)
        return body

    def _framing(self, body: bytes) -> tuple[tuple[list[bytes], bytes], bool]:
        chance = self._chance
        kind = chance.random()
        if kind < 0.75:
            return ([b"Content-Length: %d" % len(body)], body), True
        if kind < 0.85:
            chunked, good = _chunked(chance, body)
            return ([b"Transfer-Encoding: chunked"], chunked), good
        wrong = chance.choice(
            [
                [b"Content-Length: %d" % (len(body) + 10)],
                [b"Content-Length: -1"],
                [b"Content-Length: 99999999999999999999"],
                [b"Content-Length: 0x10"],
                [b"Content-Length: %d" % len(body), b"Content-Length: 3"],
                [b"Content-Length: %d" % len(body), b"Transfer-Encoding: chunked"],
                [b"Transfer-Encoding: gzip, chunked"],
                [b"Transfer-Encoding: identity"],
                [b"Content-Length: 5"],
                [],
            ]
        )
        return (wrong, body), False

    def _pieces(self, data: bytes) -> tuple[bytes, ...]:
        chance = self._chance
        if chance.random() < 0.9 or len(data) < 3:
            return (data,)
        cuts = sorted(chance.sample(range(1, len(data)), min(6, len(data) - 1)))
        return tuple(data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True))


def _chunked(chance: random.Random, body: bytes) -> tuple[bytes, bool]:
    size = chance.randrange(1, 500)
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    if chance.random() < 0.6:
        return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n", True
    bad = chance.choice(
        [b"zz\r\n", b"-1\r\n", b"ffffffffffffffffff\r\n", b"5;" + b"e" * 20000, b"\r\n"]
    )
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts[:1]) + bad, False


def _flip(chance: random.Random, body: bytes) -> bytes:
    at = chance.randrange(len(body) + 1)
    return body[:at] + chance.randbytes(1) + body[at + 1 :]


def _cut(chance: random.Random, body: bytes) -> bytes:
    return body[: chance.randrange(len(body) + 1)]


def _swap_word(chance: random.Random, body: bytes) -> bytes:
    words = [
        b"E1",
        b"ENDPOINT",
        b"code",
        b"xmlns",
        b"INDIRECT",
        b"<",
        b">",
        b"true",
        b"false",
        b'"',
    ]
    old = chance.choice(words)
    new = chance.choice([*words, b"", b"&#0;", b"&x;", b"\xff\xfe", b"]]>", b"9" * 400, b"--"])
    return body.replace(old, new, 1)


def _repeat(chance: random.Random, body: bytes) -> bytes:
    start = chance.randrange(len(body) + 1)
    end = min(len(body), start + chance.randrange(1, 200))
    return body[:end] + body[start:end] * chance.randrange(1, 50) + body[end:]


def _drop_element(chance: random.Random, body: bytes) -> bytes:
    """Still well-formed, no longer valid."""
    leaves = list(re.finditer(rb"<([\w:]+)>[^<]*</\1>", body))
    if not leaves:
        return body
    leaf = chance.choice(leaves)
    return body[: leaf.start()] + body[leaf.end() :]


def _other_text(chance: random.Random, body: bytes) -> bytes:
    texts = list(re.finditer(rb">([^<]+)<", body))
    if not texts:
        return body
    text = chance.choice(texts)
    new = chance.choice([b"", b"x", b"E2", b"*", b"-1", b"2026-13-45T00:00:00Z", b"\xc3\xa9" * 300])
    return body[: text.start(1)] + new + body[text.end(1) :]


def _entities(chance: random.Random, body: bytes) -> bytes:
    return b'<!DOCTYPE a [<!ENTITY b "cc"><!ENTITY d "&b;&b;&b;">]>' + body


def _external(chance: random.Random, body: bytes) -> bytes:
    return b'<!DOCTYPE a SYSTEM "file:///etc/passwd">' + body


def _deep(chance: random.Random, body: bytes) -> bytes:
    depth = chance.choice([100, 5_000])
    return b"<a>" * depth + b"</a>" * depth


def _encoding(chance: random.Random, body: bytes) -> bytes:
    name = chance.choice([b"UTF-16", b"UTF-7", b"latin1", b"x-none"])
    return b'<?xml version="1.0" encoding="%s"?>' % name + body


def _empty(chance: random.Random, body: bytes) -> bytes:
    return b""


BODY_CHANGES: list[Callable[[random.Random, bytes], bytes]] = [
    _flip,
    _flip,
    _cut,
    _swap_word,
    _drop_element,
    _drop_element,
    _other_text,
    _other_text,
    _other_text,
    _repeat,
    _entities,
    _external,
    _deep,
    _encoding,
    _empty,
]


def _add(*lines: bytes) -> Callable[[random.Random, list[bytes]], None]:
    return lambda _, headers: headers.extend(lines)


HEADER_CHANGES: list[Callable[[random.Random, list[bytes]], None]] = [
    _add(b"X: " + b"y" * 40_000),
    _add(*(b"X-%d: 1" % n for n in range(300))),
    _add(b"Bad Name: 1"),
    _add(b": nothing"),
    _add(b"no colon"),
    _add(b"X: a\x00b"),
    _add(b"X: 1", b" folded: 2"),
    _add(b"Expect: 100-continue"),
    _add(b"Connection: close"),
    _add(b"Connection: upgrade", b"Upgrade: h2c"),
    _add(b"Host: another"),
    _add(b"Content-Encoding: gzip"),
    _add(b"X-Forwarded-For: 127.0.0.1", b"X-Client-Cert: E2"),
    lambda _, headers: headers.pop(0),
]
