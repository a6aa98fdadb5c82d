"""A check of documents by a command: the document on its standard input, the verdict as exit code.

0 passes, 1 refuses with the first line that it prints, anything else is a failure of the check.
What is known of the document is in environment variables that begin with GRIDPOST_.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

from gridpost.core.checks import CheckedDocument, Finding
from gridpost.core.refusal import Refusal, Rule

_OUTPUT = 4096
_REASON = 500


class CommandCheck:
    """core.checks.DocumentCheck."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = tuple(command)

    async def check(self, document: CheckedDocument) -> Finding:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=_environment(document),
                # A group of its own: what the command has started ends with it.
                start_new_session=True,
            )
        except OSError as error:
            raise Refusal(
                Rule.CHECK_FAILED, f"{self._command[0]} cannot be run: {error.strerror}"
            ) from None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _, printed = await asyncio.gather(
                _give(process.stdin, document.content), _read(process.stdout)
            )
            code = await process.wait()
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        lines = printed.decode("utf-8", "replace").strip().splitlines()
        reason = "".join(c if c.isprintable() else "?" for c in (lines or [""])[0])[:_REASON]
        if code == 0:
            return Finding(True)
        if code == 1:
            return Finding(False, reason or "no reason given")
        raise Refusal(
            Rule.CHECK_FAILED,
            f"{self._command[0]} ended with {code}" + (f": {reason}" if reason else ""),
        )


async def _give(stdin: asyncio.StreamWriter, content: bytes) -> None:
    # Many checks decide before they have read everything.
    with contextlib.suppress(ConnectionError):
        stdin.write(content)
        await stdin.drain()
    with contextlib.suppress(ConnectionError):
        stdin.close()
        await stdin.wait_closed()


async def _read(stdout: asyncio.StreamReader) -> bytes:
    kept = b""
    while chunk := await stdout.read(65536):
        kept = (kept + chunk)[:_OUTPUT]
    return kept


def _environment(document: CheckedDocument) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GRIDPOST_")}
    return kept | {
        "GRIDPOST_SIDE": document.side,
        "GRIDPOST_SENDER_CODE": document.sender,
        "GRIDPOST_RECEIVER_CODE": document.receiver,
        "GRIDPOST_MESSAGE_TYPE": document.message_type,
        **{f"GRIDPOST_{name}": value for name, value in document.fields.items()},
    }
