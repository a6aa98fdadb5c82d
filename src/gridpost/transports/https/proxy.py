"""The proxies that lead to an HTTPS server: by CONNECT (RFC 9110 9.3.6) or by SOCKS 5."""

from __future__ import annotations

import asyncio
import socket
from base64 import b64encode
from urllib.parse import SplitResult, unquote, urlsplit

from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.socks import SocksProxy, connect_through

_SCHEMES = ("http", "socks5", "socks5h")
_MAX_HEAD = 16 * 1024


def read_proxy(url: str) -> SplitResult:
    parts = urlsplit(url)
    # TLS to the proxy itself would look like TLS to the peer.
    if parts.scheme not in _SCHEMES or not parts.hostname or not parts.port:
        raise Refusal(
            Rule.INCONSISTENT_CONFIGURATION,
            f"a proxy is given as http://host:port or socks5://host:port, not as '{url}'",
        )
    return parts


async def lead_through(proxy: SplitResult, host: str, port: int) -> socket.socket:
    """A socket that leads to the host. OSError when the proxy does not get there."""
    name, number = str(proxy.hostname), int(proxy.port or 0)
    user, password = unquote(proxy.username or ""), unquote(proxy.password or "")
    if proxy.scheme != "http":
        return await connect_through(SocksProxy(name, number, user, password), host, port)
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, number, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    connection = socket.socket(family, kind, protocol)
    connection.setblocking(False)
    try:
        await loop.sock_connect(connection, address)
        await loop.sock_sendall(connection, _connect(host, port, user, password))
        await _answer(loop, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(host: str, port: int, user: str, password: str) -> bytes:
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if user:
        token = b64encode(f"{user}:{password}".encode()).decode("ascii")
        lines.append(f"Proxy-Authorization: Basic {token}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


async def _answer(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    head = b""
    # Octet by octet: what follows the head belongs to TLS. The server behind says nothing first.
    while not head.endswith(b"\r\n\r\n"):
        more = await loop.sock_recv(connection, 1)
        if not more or len(head) > _MAX_HEAD:
            raise OSError("the proxy hung up" if not more else "the proxy does not speak HTTP")
        head += more
    first = head.split(b"\r\n", 1)[0].decode("latin-1")
    version, _, rest = first.partition(" ")
    if not version.startswith("HTTP/1.") or not rest.startswith("2"):
        raise OSError(f"the proxy answers '{rest[:100]}'")
