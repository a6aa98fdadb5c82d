"""Registration and renewal of a broker from the command line: one process that ends, with one answer."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gridpost.assembly.broker import BrokerParts, broker_parts
from gridpost.assembly.broker_configuration import read_broker_configuration
from gridpost.core.enrolment import Enrolment, EnrolmentState
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.wire.directory import decode_bundle


def register_broker(file: Path, bundle: Path, password: str, wait: float) -> dict[str, Any]:
    """Begins a registration, or goes on with the one that was begun."""
    try:
        decoded = decode_bundle(bundle.read_bytes())
    except OSError as error:
        raise Refusal(Rule.USAGE, f"{bundle} cannot be read: {error.strerror}") from None

    async def begin(parts: BrokerParts) -> None:
        before = await parts.client.enroller.current()
        if before is None or before.state is EnrolmentState.REJECTED:
            await parts.client.enroller.register(
                decoded, password, parts.configuration.contact_of(), by=getpass.getuser()
            )

    return asyncio.run(_enrol(file, begin, wait))


def renew_broker(file: Path, wait: float) -> dict[str, Any]:
    async def begin(parts: BrokerParts) -> None:
        before = await parts.client.enroller.current()
        if before is None or before.final:
            await parts.client.enroller.renew(by=getpass.getuser())

    return asyncio.run(_enrol(file, begin, wait))


async def _enrol(
    file: Path, begin: Callable[[BrokerParts], Awaitable[None]], wait: float
) -> dict[str, Any]:
    async with broker_parts(read_broker_configuration(file)) as parts:
        await begin(parts)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait or None):
                await _steps(parts.client, once=not wait)
        found = await parts.client.enroller.current()
        assert found is not None
        if found.state is EnrolmentState.INSTALLED:
            await parts.client.copy.load()
            await parts.client.synchroniser.round()
        return _plain(found, parts.client.enroller.reason)


async def _steps(client: DirectoryClient, *, once: bool) -> None:
    """Until it is decided; `once`: as far as it goes without waiting."""
    while (delay := await client.enroller.step()) is not None:
        if once and delay:
            return
        await asyncio.sleep(delay.total_seconds())


def _plain(enrolment: Enrolment, problem: str) -> dict[str, Any]:
    return {
        "code": enrolment.request.code,
        "state": enrolment.state.value,
        "registration": enrolment.registration_id,
        "reason": enrolment.reason or problem,
    }
