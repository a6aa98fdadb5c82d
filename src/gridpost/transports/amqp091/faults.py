"""Which refusal an error of the library becomes; whatever is not listed is a bug of ours and is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from aiormq import exceptions

from gridpost.core.refusal import Refusal, Rule

_RULES: Final[tuple[tuple[type[BaseException], Rule], ...]] = (
    (exceptions.ChannelNotFoundEntity, Rule.AMQP091_NOT_FOUND),
    (exceptions.ChannelAccessRefused, Rule.AMQP091_DENIED),
    (exceptions.ChannelLockedResource, Rule.AMQP091_LOCKED),
    (exceptions.PublishError, Rule.AMQP091_UNROUTED),
    (exceptions.DeliveryError, Rule.AMQP091_NOT_CONFIRMED),
    (exceptions.ChannelPreconditionFailed, Rule.AMQP091_FAILED),
    (exceptions.AuthenticationError, Rule.AMQP091_DENIED),
    (exceptions.ProbableAuthenticationError, Rule.AMQP091_DENIED),
    (exceptions.ConnectionClosed, Rule.AMQP091_UNREACHABLE),
    (exceptions.ChannelInvalidStateError, Rule.AMQP091_UNREACHABLE),
    (exceptions.AMQPConnectionError, Rule.AMQP091_UNREACHABLE),
    # Without a reason of its own: it went with its connection.
    (exceptions.AMQPChannelError, Rule.AMQP091_UNREACHABLE),
    (exceptions.AMQPError, Rule.AMQP091_UNREACHABLE),
    (OSError, Rule.AMQP091_UNREACHABLE),
    (EOFError, Rule.AMQP091_UNREACHABLE),
    (TimeoutError, Rule.AMQP091_UNREACHABLE),
    (RuntimeError, Rule.AMQP091_UNREACHABLE),
)


def refusal_of(error: BaseException, what: str) -> Refusal:
    """Raises what is a bug of ours."""
    for kind, rule in _RULES:
        if isinstance(error, kind):
            text = str(error) or type(error).__name__
            return Refusal(rule, f"RabbitMQ, {what}: {text}")
    raise error


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Errors of the library as refusals; a cancelled channel is a lost one."""
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise Refusal(Rule.AMQP091_UNREACHABLE, f"RabbitMQ, {what}: the channel ended") from None
    except Refusal:
        raise
    except Exception as error:
        raise refusal_of(error, what) from error
