"""How far this machine's clock is off, asked of NTP servers in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import ntplib

_SECONDS = 5


async def clock_offset(servers: Sequence[str]) -> timedelta:
    """From the first server that answers; `host` or `host:port`."""
    problem = OSError("no NTP server is configured")
    for server in servers:
        host, _, port = server.partition(":")
        try:
            answer = await asyncio.to_thread(
                ntplib.NTPClient().request, host, version=4, port=port or "ntp", timeout=_SECONDS
            )
            return timedelta(seconds=answer.offset)
        except (ntplib.NTPException, OSError) as error:
            problem = OSError(f"{server}: {error}")
    raise problem
