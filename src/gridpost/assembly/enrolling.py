"""Registration and renewal from the command line: one process that ends, with one answer.

The same for every kind of component: what differs is how its parts are opened.
"""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, Protocol

from gridpost.assembly.broker import broker_parts
from gridpost.assembly.broker_configuration import read_broker_configuration
from gridpost.assembly.endpoint import endpoint_parts
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.core.component import Contact
from gridpost.core.enrolment import Enrolment, EnrolmentState
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.wire.directory import decode_bundle


class Enrolling(Protocol):
    """The parts of a component that its registration needs."""

    @property
    def client(self) -> DirectoryClient: ...


Opened = AbstractAsyncContextManager[Enrolling]


def register_broker(file: Path, bundle: Path, password: str, wait: float) -> dict[str, Any]:
    configuration = read_broker_configuration(file)
    contact = configuration.contact_of()
    return _register(broker_parts(configuration), contact, bundle, password, wait)


def renew_broker(file: Path, wait: float) -> dict[str, Any]:
    return _renew(broker_parts(read_broker_configuration(file)), wait)


def register_endpoint(file: Path, bundle: Path, password: str, wait: float) -> dict[str, Any]:
    configuration = read_endpoint_configuration(file)
    contact = configuration.contact_of()
    return _register(endpoint_parts(configuration), contact, bundle, password, wait)


def renew_endpoint(file: Path, wait: float) -> dict[str, Any]:
    return _renew(endpoint_parts(read_endpoint_configuration(file)), wait)


def _register(
    opened: Opened, contact: Contact, bundle: Path, password: str, wait: float
) -> dict[str, Any]:
    """Begins a registration, or goes on with the one that was begun."""
    try:
        decoded = decode_bundle(bundle.read_bytes())
    except OSError as error:
        raise Refusal(Rule.USAGE, f"{bundle} cannot be read: {error.strerror}") from None

    async def begin(client: DirectoryClient) -> None:
        before = await client.enroller.current()
        if before is None or before.state is EnrolmentState.REJECTED:
            await client.enroller.register(decoded, password, contact, by=getpass.getuser())

    return asyncio.run(_enrol(opened, begin, wait))


def _renew(opened: Opened, wait: float) -> dict[str, Any]:
    async def begin(client: DirectoryClient) -> None:
        before = await client.enroller.current()
        if before is None or before.final:
            await client.enroller.renew(by=getpass.getuser())

    return asyncio.run(_enrol(opened, begin, wait))


async def _enrol(
    opened: Opened, begin: Callable[[DirectoryClient], Awaitable[None]], wait: float
) -> dict[str, Any]:
    async with opened as parts:
        await begin(parts.client)
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
