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
from gridpost.core.certificate import Certificate, expiring
from gridpost.core.message_path import MessagePath
from gridpost.core.refusal import Refusal, Rule
from gridpost.stores.keys.files import read_record
from gridpost.wire.x509.read import load

SOON = timedelta(days=14)


def doubts(
    configuration: Configuration, home: Path, roots: Iterable[Path], now: datetime
) -> list[str]:
    """Warnings; a certificate that has expired is a refusal, because nobody would believe it."""
    _require_files(configuration)
    return [
        *_ports(configuration),
        *_certificates([*roots, *(file for _, file in certificate_files(configuration))], now),
        *_home(home),
    ]


def never_used(paths: Iterable[MessagePath], now: datetime, strict: bool) -> list[str]:
    """503 cl. 5.3: message-paths that no message can take. `strict`: message-types have no hyphen."""
    found = []
    for path in paths:
        which = f"the message-path {path.message_type} by {path.route}"
        if path.valid_until is not None and path.valid_until.at <= now:
            found.append(f"{which} ended at {path.valid_until}: it can never be used again")
        if path.senders is not None and not path.senders:
            found.append(f"{which} has no senders: nobody can ever use it")
        if strict and "-" in path.message_type:
            found.append(
                f"{which} can never match: with strict_patterns a message-type has no hyphen"
            )
    return found


def own_certificates(folder: Path) -> list[Certificate]:
    """Of the keys that a component has made; none before it is registered."""
    return [read_record(file) for file in sorted(folder.glob("*.json"))]


def own_doubts(certificates: Iterable[Certificate], now: datetime) -> list[str]:
    return [
        f"its own {c.kind} certificate {c.certificate_id} "
        + (
            f"expired at {c.not_after:%Y-%m-%d %H:%M} UTC: no other component believes it"
            if c.not_after < now
            else f"ends at {c.not_after:%Y-%m-%d %H:%M} UTC"
        )
        for c in expiring(certificates, now, SOON)
    ]


def _sections(model: BaseModel, name: str = "") -> Iterator[tuple[str, BaseModel]]:
    for field in type(model).model_fields:
        value = getattr(model, field)
        for place, section in _within(f"{name}{field}", value):
            yield place, section
            yield from _sections(section, f"{place}.")


def _within(place: str, value: object) -> Iterator[tuple[str, BaseModel]]:
    if isinstance(value, BaseModel):
        yield place, value
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from _within(f"{place}.{number}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _within(f"{place}.{key}", item)


def _require_files(configuration: Configuration) -> None:
    """Every file that is named is there and can be read."""
    for place, section in (("", configuration), *_sections(configuration)):
        for name, value in section:
            files = value if isinstance(value, tuple) else (value,)
            for file in files:
                if isinstance(file, Path) and name not in _MADE and not os.access(file, os.R_OK):
                    reason = "cannot be read by this user" if file.exists() else "is not there"
                    where = f"{place}.{name}" if place else name
                    raise Refusal(Rule.USAGE, f"{where}: {file} {reason}")


_MADE = frozenset({"home", "lake", "folder", "out", "out_error", "out_log"})
"""Folders: they are made at the start, or by others."""


def _ports(configuration: Configuration) -> Iterator[str]:
    """Where this component will listen: taken twice in the file is a mistake, by others a warning."""
    seen: list[tuple[str, int, str]] = []
    for place, section in _sections(configuration):
        values: Mapping[str, object] = dict(section)
        host, port = values.get("host"), values.get("port")
        # Sections that name a server of somebody else have no port to listen on.
        if not isinstance(host, str) or not isinstance(port, int) or not port or place in _OTHERS:
            continue
        for other, number, where in seen:
            if number == port and (host == other or {host, other} & _ALL_ADDRESSES):
                raise Refusal(
                    Rule.USAGE, f"{place}.port and {where}.port are both {port} on {host}"
                )
        seen.append((host, port, place))
        reason = _taken(host, port)
        if reason:
            yield f"{place}.port {port} on {host}: {reason}; the component itself may be running"


_OTHERS = frozenset({"alerts.email"})
_ALL_ADDRESSES = frozenset({"0.0.0.0", "::", ""})


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
