"""Independent AMQP applications of an endpoint, each a process: proton's reactor and rhea."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parents[1] / "interop"
QUEUES = {
    "outbox": "ecp.endpoint.outbox",
    "reply": "ecp.endpoint.outbox.reply",
    "inbox": "ecp.endpoint.inbox",
    "event": "ecp.endpoint.send.event",
}
has_rhea = shutil.which("node") is not None and (HERE / "node_modules" / "rhea").is_dir()
needs_rhea = pytest.mark.skipif(
    not has_rhea, reason="node or the npm package rhea is missing (npm ci in tests/interop)"
)
both = pytest.mark.parametrize("library", ["proton", pytest.param("rhea", marks=needs_rhea)])
rhea = pytest.mark.parametrize("library", [pytest.param("rhea", marks=needs_rhea)])
"""Where the library makes no difference: its processes start faster."""


async def application(
    library: str, port: int, *, seconds: float = 60, **task: Any
) -> dict[str, Any]:
    for way in ("send", "consume"):
        if way in task:
            task[way] = QUEUES.get(task[way], task[way])
    program = (
        [sys.executable, str(HERE / "application_proton.py")]
        if library == "proton"
        else ["node", str(HERE / "application_rhea.js")]
    )
    process = await asyncio.create_subprocess_exec(
        *program,
        str(port),
        json.dumps(task),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
        raise AssertionError(f"{task}: no end: {err.decode()}") from None
    assert out, err.decode()
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def document(body: str = "<document/>", **more: Any) -> dict[str, Any]:
    """One outbox message to E2; keyword arguments in capitals-free words are application-properties."""
    kept = {name: more.pop(name) for name in ("correlation", "id", "value", "size") if name in more}
    properties = {"receiverCode": "E2", "messageType": "Q01", **more}
    return {
        "properties": {k: v for k, v in properties.items() if v is not None},
        "body": body,
        **kept,
    }
