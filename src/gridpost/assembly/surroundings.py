"""What `gridpost check-config` finds around a file: ports that are taken, certificates that end, folders."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from pydantic import BaseModel

from gridpost.assembly.configuration import Configuration
from gridpost.assembly.directory_configuration import read_certificates
from gridpost.core.message_path import MessagePath
from gridpost.core.refusal import Refusal, Rule
from gridpost.wire.x509.read import load

SOON = timedelta(days=14)


def doubts(
    configuration: Configuration, home: Path, roots: Iterable[Path], now: datetime
) -> list[str]:
    """Warnings; a certificate that has expired is a refusal, because nobody would believe it."""
    return [
        *_ports(configuration),
        *_certificates([*roots, *(file for _, file in certificate_files(configuration))], now),
        *_home(home),
    ]


def never_used(paths: Iterable[MessagePath], now: datetime) -> list[str]:
    """503 cl. 5.3: message-paths that no message can take any more."""
    return [
        f"the message-path {path.message_type} by {path.route} ended at {path.valid_until}: "
        "it can never be used again"
        for path in paths
        if path.valid_until is not None and path.valid_until.at <= now
    ]


def _sections(model: BaseModel, name: str = "") -> Iterator[tuple[str, BaseModel]]:
    for field in type(model).model_fields:
        value = getattr(model, field)
        if isinstance(value, BaseModel):
            place = f"{name}{field}"
            yield place, value
            yield from _sections(value, f"{place}.")


def _ports(configuration: Configuration) -> Iterator[str]:
    """Where this component will listen: taken twice in the file is a mistake, by others a warning."""
    seen: dict[tuple[str, int], str] = {}
    for place, section in _sections(configuration):
        values: Mapping[str, object] = dict(section)
        host, port = values.get("host"), values.get("port")
        # Sections that name a server of somebody else have no port to listen on.
        if not isinstance(host, str) or not isinstance(port, int) or not port or place in _OTHERS:
            continue
        if (host, port) in seen:
            raise Refusal(
                Rule.USAGE, f"{place}.port and {seen[host, port]}.port are both {port} on {host}"
            )
        seen[host, port] = place
        reason = _taken(host, port)
        if reason:
            yield f"{place}.port {port} on {host}: {reason}; the component itself may be running"


_OTHERS = frozenset({"alerts.email"})


def _taken(host: str, port: int) -> str:
    try:
        address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(address[0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address[4])
    except OSError as error:
        return error.strerror or str(error)
    return ""


def certificate_files(configuration: Configuration) -> Iterator[tuple[str, Path]]:
    """Those that an operator renews, with the section that names each."""
    for place, section in _sections(configuration):
        value = dict(section).get("certificate")
        if isinstance(value, Path):
            yield place, value


def _certificates(files: Iterable[Path], now: datetime) -> Iterator[str]:
    for file in files:
        for der in read_certificates(file):
            # Not only of MADES: RabbitMQ's or a console's may have any kind of key.
            found = load(der)
            begins, ends = found.not_valid_before_utc, found.not_valid_after_utc
            if ends <= now:
                raise Refusal(
                    Rule.USAGE,
                    f"{file}: the certificate expired at {ends:%Y-%m-%d %H:%M} UTC",
                    "renew it, or take it out of the configuration",
                )
            if begins > now:
                yield f"{file}: the certificate is not valid before {begins:%Y-%m-%d %H:%M} UTC"
            if ends - now <= SOON:
                yield f"{file}: the certificate ends at {ends:%Y-%m-%d %H:%M} UTC"


def _home(home: Path) -> Iterator[str]:
    place = home if home.exists() else next(p for p in home.parents if p.exists())
    if not place.is_dir():
        raise Refusal(Rule.USAGE, f"home: {place} is not a folder")
    if not os.access(place, os.W_OK | os.X_OK):
        yield f"home: {place} cannot be written by this user"
