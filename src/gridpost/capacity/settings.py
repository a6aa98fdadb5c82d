"""How a client reaches the broker, and how patient it is (CMM 2.2, 4.2)."""

from __future__ import annotations

import os
import ssl
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.package_tls import package_context
from gridpost.wire.cmm import Names

PASSPHRASE = "GRIDPOST_CAPACITY_PASSPHRASE"


@dataclass(frozen=True, slots=True)
class ClientSettings:
    user: str
    urls: tuple[str, ...]
    tls: Callable[[], ssl.SSLContext] = field(repr=False)
    virtual_host: str = "cmm"
    password: str = field(default="", repr=False)
    """Empty: the certificate says who we are (EXTERNAL)."""
    arguments: str = ""
    """Filter of the Login, like X_Border:DE-FR|AT-DE,X_Event:ALLOCATION."""
    response_timeout: timedelta = timedelta(seconds=10)
    login_timeout: timedelta = timedelta(seconds=30)
    expiration: timedelta | None = None
    """After which the broker discards a request that the service has not taken."""
    zipped: bool = False
    heartbeat: int = 30
    separate_connections: bool = False
    """One connection to publish and one to consume: a blocked publisher still hears answers."""
    missed_heartbeats: float = 3
    """Periods of silence after which the service counts as down."""
    heartbeat_period: timedelta | None = timedelta(seconds=5)
    """What a period is before the first heartbeat says it; None: wait for that heartbeat."""
    interconnectors: tuple[tuple[str, str], ...] = ()
    """For recovery after a gap, beside those that broadcasts have named so far."""
    balancing_groups: tuple[str, ...] = ()
    """To recover after a loss of the connection, beside those that broadcasts have named so far."""
    zone: str = "UTC"
    """Of the market: a recovery asks for its delivery days."""
    recovery_days: tuple[int, int] = (-1, 2)
    """Days before and after now that a recovery asks for, the second exclusive."""
    recovery_pause: timedelta = timedelta(seconds=1)
    """Between two recoveries at least: a storm of gaps must not become one of requests."""
    buffer: int = 100_000
    """Events that wait for the application; beyond it the oldest are dropped and counted."""
    names: Names = field(default_factory=Names)


def read_client_settings(file: Path, passphrase: str | None = None) -> ClientSettings:
    """From the `client.toml` of an account package; relative paths count from its folder."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(Rule.USAGE, f"{file} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refusal(Rule.USAGE, f"{file} is not TOML: {error}") from None
    known = {"user", "urls", "virtual_host", "package", "roots", "arguments"}
    recovery = {"interconnectors", "balancing_groups", "zone"}
    unknown = set(values) - known - recovery
    missing = {"user", "urls", "package", "roots"} - set(values)
    if unknown or missing:
        wrong = [*(f"{name} is missing" for name in sorted(missing)),
                 *(f"{name} is unknown" for name in sorted(unknown))]  # fmt: skip
        raise Refusal(Rule.USAGE, f"{file}: {', '.join(wrong)}")
    secret = os.environ.get(PASSPHRASE, "") if passphrase is None else passphrase
    if not secret:
        raise Refusal(Rule.USAGE, f"no passphrase for the package: set {PASSPHRASE}")
    folder = file.resolve().parent
    roots, package = folder / values["roots"], folder / values["package"]
    return ClientSettings(
        user=str(values["user"]),
        urls=tuple(map(str, values["urls"])),
        tls=lambda: package_context(roots, package, secret),
        virtual_host=str(values.get("virtual_host", "cmm")),
        arguments=str(values.get("arguments", "")),
        interconnectors=tuple((str(a), str(b)) for a, b in values.get("interconnectors", ())),
        balancing_groups=tuple(map(str, values.get("balancing_groups", ()))),
        zone=str(values.get("zone", "UTC")),
    )
