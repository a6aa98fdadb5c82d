"""HTTPS with certificates on both sides: a server for ASGI applications and a client."""

from gridpost.transports.https.client import HttpsClient, Keeping, Timeouts
from gridpost.transports.https.connection import LiveConnection, client_chain
from gridpost.transports.https.server import HttpsServer, Limits, MalformedAnswer, serve
from gridpost.transports.https.tls import ClientCertificate, ClientTls, ServerTls

__all__ = [
    "ClientCertificate",
    "ClientTls",
    "HttpsClient",
    "HttpsServer",
    "Keeping",
    "Limits",
    "LiveConnection",
    "MalformedAnswer",
    "ServerTls",
    "Timeouts",
    "client_chain",
    "serve",
]
