"""How many files and sockets this process may have open at once."""

from __future__ import annotations

import resource

import structlog

log = structlog.get_logger(__name__)

# What a component opens besides connections: databases, body files, logs, its own listeners.
_OTHERS = 256


def allow_connections(connections: int) -> None:
    """Raise the soft limit as far as the hard one lets us: the usual 1,024 are for interactive use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        log.warning(
            "fewer connections than configured are possible: raise the limit of open files",
            limit=allowed,
            max_connections=connections,
        )
