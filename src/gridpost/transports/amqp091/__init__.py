"""AMQP 0-9-1 to RabbitMQ: aio-pika speaks the protocol; its errors become refusals here and its callbacks the
ports of `core.amqp091`. Nothing is repeated behind the caller's back: after a loss it gets a new connection
and decides itself what of its work has to be done again.
"""

from gridpost.transports.amqp091.client import Amqp091Client, Amqp091Tls
from gridpost.transports.amqp091.keeper import Amqp091Keeper

__all__ = ["Amqp091Client", "Amqp091Keeper", "Amqp091Tls"]
