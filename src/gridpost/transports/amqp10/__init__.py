"""AMQP 1.0 over TLS: proton's protocol engine under asyncio, in both roles."""

from gridpost.transports.amqp10.client import AmqpClient, ClientConnection
from gridpost.transports.amqp10.conditions import render
from gridpost.transports.amqp10.keeper import Backoff, SessionKeeper
from gridpost.transports.amqp10.limits import AmqpLimits
from gridpost.transports.amqp10.sasl import Credentials
from gridpost.transports.amqp10.server import AmqpServer, ConnectionView
from gridpost.transports.amqp10.tls import TlsCredentials, TlsProvider
from gridpost.transports.socks import SocksProxy

__all__ = [
    "AmqpClient",
    "AmqpLimits",
    "AmqpServer",
    "Backoff",
    "ClientConnection",
    "ConnectionView",
    "Credentials",
    "SessionKeeper",
    "SocksProxy",
    "TlsCredentials",
    "TlsProvider",
    "render",
]
