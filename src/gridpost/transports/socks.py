"""SOCKS 5 (RFC 1928, 1929): the proxies that carry AMQPS as well as HTTPS (503 cl. 10)."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from dataclasses import dataclass
from typing import Final

_VERSION: Final = 5
_NO_PASSWORD, _PASSWORD = 0, 2
_CONNECT: Final = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_REASONS: Final = {
    1: "general failure",
    2: "not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "address type not supported",
}


@dataclass(frozen=True, slots=True)
class SocksProxy:
    """Names of hosts are resolved by the proxy: inside, they may not exist."""

    host: str
    port: int = 1080
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        return f"SocksProxy({self.host!r}, {self.port})"


async def connect_through(proxy: SocksProxy, host: str, port: int) -> socket.socket:
    """A socket that leads to the host. OSError when the proxy does not get there."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    connection = socket.socket(family, kind, protocol)
    connection.setblocking(False)
    try:
        await loop.sock_connect(connection, address)
        await _negotiate(loop, connection, proxy)
        await loop.sock_sendall(connection, _request(host, port))
        await _reply(loop, connection)
    except BaseException:
        connection.close()
        raise
    return connection


async def _negotiate(
    loop: asyncio.AbstractEventLoop, connection: socket.socket, proxy: SocksProxy
) -> None:
    methods = (_NO_PASSWORD, _PASSWORD) if proxy.user else (_NO_PASSWORD,)
    await loop.sock_sendall(connection, bytes((_VERSION, len(methods), *methods)))
    version, method = await _exactly(loop, connection, 2)
    if version != _VERSION or method not in methods:
        raise OSError("the SOCKS proxy accepts no method of ours")
    if method == _PASSWORD:
        user, password = proxy.user.encode(), proxy.password.encode()
        login = bytes((1, len(user))) + user + bytes((len(password),)) + password
        await loop.sock_sendall(connection, login)
        _, status = await _exactly(loop, connection, 2)
        if status:
            raise OSError("the SOCKS proxy does not accept our password")


def _request(host: str, port: int) -> bytes:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        name = host.encode("idna")
        target = bytes((_NAME, len(name))) + name
    else:
        target = bytes((_IPV4 if address.version == 4 else _IPV6,)) + address.packed
    return bytes((_VERSION, _CONNECT, 0)) + target + port.to_bytes(2, "big")


async def _reply(loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
    version, status, _, kind = await _exactly(loop, connection, 4)
    if version != _VERSION or status:
        raise OSError(f"the SOCKS proxy: {_REASONS.get(status, f'reply {status}')}")
    if kind == _NAME:
        (size,) = await _exactly(loop, connection, 1)
    else:
        size = 4 if kind == _IPV4 else 16
    await _exactly(loop, connection, size + 2)


async def _exactly(loop: asyncio.AbstractEventLoop, connection: socket.socket, size: int) -> bytes:
    octets = b""
    while len(octets) < size:
        more = await loop.sock_recv(connection, size - len(octets))
        if not more:
            raise OSError("the SOCKS proxy hung up")
        octets += more
    return octets
