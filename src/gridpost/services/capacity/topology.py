"""What stands on the broker (CMM 3.1, 3.2): exchanges of the service, and the private queues of users."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from gridpost.core.allocation import Party, Role
from gridpost.core.amqp091 import Channel, RabbitConnection
from gridpost.core.broadcast import X_BG, X_BORDER, X_DAY, X_MATCH, X_SEQUENCE_ID, LoginFilter
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.capacity.settings import CapacitySettings

# Before, such queues are not durable; from this version on RabbitMQ allows only durable ones.
_DURABLE_FROM = (4, 3)
_ATC_ONLY = frozenset({X_BORDER, X_DAY})
_ALLOCATION_ONLY = frozenset({X_BG, X_SEQUENCE_ID})


@dataclass(frozen=True, slots=True)
class Binding:
    exchange: str
    arguments: tuple[tuple[str, str], ...]


def wanted_bindings(
    settings: CapacitySettings, party: Party, chosen: LoginFilter
) -> frozenset[Binding]:
    """CMM 3.1.2: everything that its roles offer and that it has access to, less what it filters."""
    bindings = _granted(settings, party, chosen)
    if settings.heartbeats_always or not chosen.headers:
        bindings.add(Binding(settings.names.heartbeat, ()))
    return frozenset(bindings)


def login_bindings(
    settings: CapacitySettings, party: Party, chosen: LoginFilter
) -> frozenset[Binding]:
    """The same for a Login, which may not ask for too many."""
    wanted = len(_granted(settings, party, chosen))
    if wanted > settings.max_bindings:
        raise Refusal(
            Rule.LOGIN_FILTER,
            f"the filter needs {wanted} bindings; at most {settings.max_bindings} are allowed",
        )
    return wanted_bindings(settings, party, chosen)


def possible_bindings(settings: CapacitySettings, chosen: LoginFilter) -> frozenset[Binding]:
    """All that a Login with this filter can have got, whatever was granted at that time."""
    everybody = Party(
        "", frozenset(Role), tuple(settings.groups), frozenset(settings.market.borders)
    )
    heartbeat = Binding(settings.names.heartbeat, ())
    return frozenset({*_granted(settings, everybody, chosen), heartbeat})


def _granted(settings: CapacitySettings, party: Party, chosen: LoginFilter) -> set[Binding]:
    names = settings.names
    bindings: set[Binding] = set()
    if Role.EXPLICIT_PARTICIPANT in party.roles:
        for border in sorted(party.borders & set(settings.market.borders)):
            fixed = {X_BORDER: border}
            bindings |= _bound(names.atc(border), chosen, fixed, _ALLOCATION_ONLY)
    if Role.ALLOCATION_REPORTING in party.roles:
        for group in party.groups:
            bindings |= _bound(names.allocation(group), chosen, {X_BG: group}, _ATC_ONLY)
    return bindings


def _bound(
    exchange: str, chosen: LoginFilter, fixed: dict[str, str], never: frozenset[str]
) -> set[Binding]:
    """Bindings to one exchange that can match at all."""
    bindings = set()
    for arguments in chosen.bindings():
        possible = [
            name not in never and fixed.get(name, value) == value
            for name, value in arguments.items()
            if name != X_MATCH
        ]
        if not possible or (any(possible) if chosen.match == "any" else all(possible)):
            bindings.add(Binding(exchange, tuple(arguments.items())))
    return bindings


async def declare(channel: Channel, settings: CapacitySettings) -> None:
    """Everything that does not depend on who is logged in; saying it again changes nothing."""
    names = settings.names
    await channel.declare_exchange(names.heartbeat, "fanout")
    await channel.declare_exchange(names.response, "direct")
    for border in settings.market.borders:
        await channel.declare_exchange(names.atc(border), "headers")
    for group in settings.groups:
        await channel.declare_exchange(names.allocation(group), "headers")
    for user in settings.parties:
        await channel.declare_exchange(names.request(user), "fanout")


async def declare_requests(
    connection: RabbitConnection, channel: Channel, settings: CapacitySettings
) -> None:
    """CMM 3.2.4: the queue goes with its last consumer, so that requests come back to their senders."""
    names = settings.names
    arguments: dict[str, Any] = {"x-message-ttl": _milliseconds(settings.request_ttl)}
    durable = connection.version >= _DURABLE_FROM
    if durable:
        arguments["x-expires"] = _milliseconds(settings.queue_expires)
    await channel.declare_queue(
        names.request_queue, durable=durable, auto_delete=True, arguments=arguments
    )
    await bind_requests(channel, settings)


async def bind_requests(channel: Channel, settings: CapacitySettings) -> None:
    names = settings.names
    for user in settings.parties:
        await channel.bind(names.request_queue, names.request(user))


async def declare_private(
    connection: RabbitConnection, channel: Channel, settings: CapacitySettings, queue: str
) -> None:
    """Never exclusive: the service makes it, the client uses it."""
    await channel.declare_queue(
        queue,
        durable=connection.version >= _DURABLE_FROM,
        arguments={
            "x-expires": _milliseconds(settings.queue_expires),
            "x-message-ttl": _milliseconds(settings.message_ttl),
            "x-max-length-bytes": settings.queue_bytes,
            "x-overflow": "drop-head",
        },
    )


async def declare_response(
    connection: RabbitConnection, channel: Channel, settings: CapacitySettings, user: str
) -> None:
    names = settings.names
    queue = names.response_queue(user)
    await declare_private(connection, channel, settings, queue)
    await channel.bind(queue, names.response, user)


async def declare_broadcast(
    connection: RabbitConnection,
    channel: Channel,
    settings: CapacitySettings,
    user: str,
    bindings: Iterable[Binding],
) -> None:
    """Empty, whatever was in an earlier one (CMM 3.1.3)."""
    queue = settings.names.broadcast_queue(user)
    await channel.delete_queue(queue)
    await declare_private(connection, channel, settings, queue)
    for binding in bindings:
        await channel.bind(queue, binding.exchange, "", dict(binding.arguments))


async def delete_leftovers(
    connection: RabbitConnection, channel: Channel, settings: CapacitySettings
) -> None:
    """Where private queues are durable they would survive a restart of the broker; they must not."""
    if connection.version >= _DURABLE_FROM:
        for user in settings.parties:
            await channel.delete_queue(settings.names.broadcast_queue(user))
            await channel.delete_queue(settings.names.response_queue(user))


def _milliseconds(duration: timedelta) -> int:
    return max(1, duration // timedelta(milliseconds=1))
