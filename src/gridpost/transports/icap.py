"""A check of documents by an ICAP server (RFC 3507): REQMOD for what is sent, RESPMOD for what came.

204 passes. A 200 passes only with the document as it was: an answer in its place, a changed document
or one of the headers by which scanners tell what they found refuses it. All else is a failure.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit

from gridpost.core.checks import CheckedDocument, Finding
from gridpost.core.delivery import Side
from gridpost.core.refusal import Refusal, Rule

PORT, TLS_PORT = 1344, 11344
_LINE = 16 * 1024
_HEADERS = 200
_CHUNK = 256 * 1024
_FOUND = ("x-infection-found", "x-virus-id", "x-violations-found", "x-blocked")
_STATUS = re.compile(r"(?:ICAP|HTTP)/\d\.\d (\d{3})(?: (.*))?")
_THREAT = re.compile(r"Threat=([^;]+)")

Headers = dict[str, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    text: str
    headers: Headers


class IcapCheck:
    """core.checks.DocumentCheck."""

    def __init__(self, url: str, *, preview: int = 1024, ca: Path | None = None) -> None:
        parts = urlsplit(url)
        self._tls = parts.scheme == "icaps"
        self._host = parts.hostname or ""
        self._port = parts.port or (TLS_PORT if self._tls else PORT)
        self._url = f"{parts.scheme}://{parts.netloc}{parts.path or '/'}" + (
            f"?{parts.query}" if parts.query else ""
        )
        self._preview = preview
        self._ca = ca

    async def check(self, document: CheckedDocument) -> Finding:
        try:
            context = (
                ssl.create_default_context(cafile=None if self._ca is None else str(self._ca))
                if self._tls
                else None
            )
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=context, limit=_LINE
            )
        except OSError as error:
            raise self._failed(f"cannot be reached: {error}") from None
        try:
            return await self._ask(reader, writer, document)
        except asyncio.IncompleteReadError:
            raise self._failed("ended the connection") from None
        except (OSError, ValueError, asyncio.LimitOverrunError) as error:
            raise self._failed(f"gave no proper answer: {error}") from None
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        document: CheckedDocument,
    ) -> Finding:
        content = memoryview(document.content)
        sent = document.side is Side.SENT
        http = _request(document) + (b"" if sent else _response(document))
        parts = (
            f"req-hdr=0, req-body={len(http)}"
            if sent
            else f"req-hdr=0, res-hdr={len(_request(document))}, res-body={len(http)}"
        )
        preview = min(self._preview, len(content))
        whole = preview == len(content)
        writer.write(
            (
                f"{'REQMOD' if sent else 'RESPMOD'} {self._url} ICAP/1.0\r\n"
                f"Host: {self._host}:{self._port}\r\nUser-Agent: Gridpost\r\n"
                f"Allow: 204\r\nPreview: {preview}\r\nConnection: close\r\n"
                f"Encapsulated: {parts}\r\n\r\n"
            ).encode("ascii")
            + http
            + _chunk(content[:preview])
            + (b"0; ieof\r\n\r\n" if whole else b"0\r\n\r\n")
        )
        answer = await _answer(reader)
        if answer.status == 100 and not whole:
            rest = asyncio.ensure_future(_send(writer, content[preview:]))
            try:
                # A server may decide before it has everything.
                answer = await _answer(reader)
            finally:
                rest.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await rest
        return await self._finding(reader, answer, document)

    async def _finding(
        self, reader: asyncio.StreamReader, answer: _Answer, document: CheckedDocument
    ) -> Finding:
        found = next((answer.headers[h] for h in _FOUND if answer.headers.get(h)), "")
        if found:
            threat = _THREAT.search(found)
            return Finding(False, _printable(threat[1] if threat else found))
        if answer.status == 204:
            return Finding(True)
        if answer.status != 200:
            raise self._failed(f"answered {answer.status} {answer.text}".strip())
        sections = [
            s.strip().partition("=")[0] for s in answer.headers.get("encapsulated", "").split(",")
        ]
        inner = None
        for section in sections:
            if section in ("req-hdr", "res-hdr"):
                inner = await _head(reader)
        if document.side is Side.SENT and "res-hdr" in sections:
            return Finding(False, "blocked" if inner is None else f"blocked: {_printable(inner)}")
        status = _STATUS.match(inner or "")
        if document.side is Side.RECEIVED and status and int(status[1]) != 200:
            return Finding(False, f"blocked: {_printable(inner or '')}")
        same = any(s in ("req-body", "res-body") for s in sections) and await _same(
            reader, document.content
        )
        return Finding(True) if same else Finding(False, "the check would change the document")

    def _failed(self, text: str) -> Refusal:
        return Refusal(Rule.CHECK_FAILED, f"the ICAP server {self._host}:{self._port} {text}")


def _request(document: CheckedDocument) -> bytes:
    """The document as an HTTP request: where it comes from and where it goes."""
    path = f"/{quote(document.receiver)}/{quote(document.message_type)}"
    if document.side is Side.RECEIVED:
        host = _host(document.sender)
        return f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    return (
        f"POST http://{_host(document.receiver)}{path} HTTP/1.1\r\n"
        f"Host: {_host(document.receiver)}\r\n"
        "Content-Type: application/octet-stream\r\n"
        f"Content-Length: {len(document.content)}\r\n\r\n"
    ).encode()


def _response(document: CheckedDocument) -> bytes:
    return (
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
        f"Content-Length: {len(document.content)}\r\n\r\n"
    ).encode()


def _host(code: str) -> str:
    return quote(code).lower()


def _chunk(data: memoryview) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), bytes(data)) if len(data) else b""


async def _send(writer: asyncio.StreamWriter, rest: memoryview) -> None:
    for start in range(0, len(rest), _CHUNK):
        writer.write(_chunk(rest[start : start + _CHUNK]))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _line(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\n")).decode("latin-1").rstrip("\r\n")


async def _lines(reader: asyncio.StreamReader) -> list[str]:
    lines: list[str] = []
    while line := await _line(reader):
        lines.append(line)
        if len(lines) > _HEADERS:
            raise ValueError("too many headers")
    return lines


async def _head(reader: asyncio.StreamReader) -> str:
    """The first line of an encapsulated HTTP header."""
    lines = await _lines(reader)
    return lines[0] if lines else ""


async def _answer(reader: asyncio.StreamReader) -> _Answer:
    first, *rest = await _lines(reader) or [""]
    status = _STATUS.match(first)
    if status is None or not first.startswith("ICAP/"):
        raise ValueError("this is no ICAP")
    headers = {}
    for line in rest:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return _Answer(int(status[1]), status[2] or "", headers)


async def _same(reader: asyncio.StreamReader, content: bytes) -> bool:
    """Is the chunked body that follows this content, octet by octet?"""
    at = 0
    while True:
        size = int((await _line(reader)).partition(";")[0].strip(), 16)
        if size == 0:
            return at == len(content)
        if size < 0 or at + size > len(content):
            return False
        if await reader.readexactly(size) != content[at : at + size]:
            return False
        at += size
        await _line(reader)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:300]
