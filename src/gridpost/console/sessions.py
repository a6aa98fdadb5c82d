"""Sessions of a console: who is at the other end of a cookie, and until when.

They live in memory: a restart of the component ends them all.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from gridpost.console.roles import Role

MOST = 10_000


@dataclass(slots=True)
class Session:
    name: str
    role: Role
    by: str
    """How the person showed who they are: password or oidc."""
    mark: str
    """The hash of the password at that time; empty for oidc."""
    csrf: str
    began: datetime
    seen: datetime
    notice: str = ""
    """Told on the next page, once."""

    def owns(self, token: str) -> bool:
        return hmac.compare_digest(self.csrf.encode(), token.encode())


class Sessions:
    """Found by the digest of the cookie: what leaks from memory opens nothing."""

    def __init__(self, idle: timedelta, longest: timedelta) -> None:
        self.idle = idle
        self.longest = longest
        self._sessions: dict[bytes, Session] = {}

    def begin(
        self, name: str, role: Role, by: str, mark: str, now: datetime
    ) -> tuple[str, Session]:
        self._tidy(now)
        token = secrets.token_urlsafe(32)
        session = Session(name, role, by, mark, secrets.token_urlsafe(32), now, now)
        self._sessions[_digest(token)] = session
        return token, session

    def find(self, token: str, now: datetime) -> Session | None:
        session = self._sessions.get(_digest(token))
        if session is None:
            return None
        if self._over(session, now):
            del self._sessions[_digest(token)]
            return None
        return session

    def end(self, token: str) -> None:
        self._sessions.pop(_digest(token), None)

    def _over(self, session: Session, now: datetime) -> bool:
        return now - session.seen > self.idle or now - session.began > self.longest

    def _tidy(self, now: datetime) -> None:
        for key in [k for k, s in self._sessions.items() if self._over(s, now)]:
            del self._sessions[key]
        while len(self._sessions) >= MOST:
            del self._sessions[next(iter(self._sessions))]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
