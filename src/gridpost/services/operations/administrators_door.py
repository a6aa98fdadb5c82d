"""What an administrator who shows a token is answered over HTTP, and what of a refusal is written down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

import structlog
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gridpost.core.journal import JournalRow, refusal_row
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.operations.administrators import Administrators

log = structlog.get_logger(__name__)

Action = Callable[[Request, str], Awaitable[Response]]
"""With the name of the administrator."""


class AdministratorsDoor:
    def __init__(
        self,
        administrators: Administrators,
        *,
        now: Callable[[], datetime],
        note: Callable[[JournalRow], Awaitable[None]],
        status_of: Callable[[Refusal], int],
    ) -> None:
        """`note` writes a row of the component's journal."""
        self._administrators = administrators
        self._now = now
        self._note = note
        self._status_of = status_of

    def behind(self, action: Action) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            who = ""
            try:
                try:
                    who = await self._administrators.who(request.headers.get("authorization", ""))
                except Refusal as refusal:
                    return await self.refused(refusal, 401, who)
                return await action(request, who)
            except Refusal as refusal:
                return await self.refused(refusal, self._status_of(refusal), who)
            except Exception:
                bug = Refusal(Rule.INTERNAL, "unexpected error")
                log.exception("unexpected error", refusal=bug.id, path=request.url.path)
                return await self.refused(bug, 500, who)

        return endpoint

    async def refused(self, refusal: Refusal, status: int, who: str) -> Response:
        log.warning(
            "administration refused",
            refusal=refusal.id,
            rule=refusal.rule.name,
            reason=refusal.message,
            administrator=who,
        )
        try:
            await self._note(refusal_row(refusal, self._now(), peer=who, security=status == 401))
        except Exception:
            # The administrator gets the answer even when the journal cannot be written.
            log.exception("refusal not journalled", refusal=refusal.id)
        told = {
            "code": refusal.code,
            "rule": refusal.rule.name,
            "message": refusal.message,
            "details": refusal.details,
            "id": refusal.id,
        }
        headers = {"www-authenticate": "Bearer"} if status == 401 else None
        return JSONResponse({"refused": told}, status, headers)
