"""What every channel does with a refusal besides telling the application: it is logged and journalled."""

from __future__ import annotations

import structlog

from gridpost.core.journal import refusal_row
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.context import EndpointContext

log = structlog.get_logger(__name__)


async def keep_refusal(
    context: EndpointContext, refusal: Refusal, *, user: str, security: bool
) -> None:
    log.warning(
        "request refused",
        rule=refusal.rule.name,
        reason=refusal.message,
        id=refusal.id,
        user=user,
    )
    row = refusal_row(refusal, context.clock.now(), peer=user, security=security)
    try:
        await context.store.run(lambda work: work.journal.append(row))
    except Refusal as failed:
        log.error("refusal not journalled", reason=failed.message, id=refusal.id)
