"""The operator's buttons: send again, cancel, pause, maintenance; each with its row in the audit."""

from __future__ import annotations

import re

import httpx
import pytest

from console.conftest import Site
from gridpost.core.delivery import Side, Status
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.submission import Document

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]


async def press(client: httpx.AsyncClient, site: Site, path: str, **fields: str) -> httpx.Response:
    token = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/operating")).text)
    assert token is not None
    answer = await client.post(
        path, data={"csrf": token[1], **fields}, headers={"origin": site.url("E1")}
    )
    if answer.status_code == 303:
        return await client.get(answer.headers["location"])
    return answer


async def test_the_operator_pauses_cancels_resumes_and_sends_again(site: Site) -> None:
    core = site.core("E1")
    async with site.signed_in("E1", "oskar") as client:
        paused = await press(
            client, site, "/operating/pause", kind="type", value="PAUSED-*", reason="they test"
        )
        assert "they test" in paused.text
        waiting = await core.submission.send("json/app", Document("E2", "PAUSED-1", b"document"))
        shown = await client.get(f"/messages/sent/{waiting}")
        assert "Sending is paused here" in shown.text
        cancelled = await press(
            client, site, f"/messages/sent/{waiting}/cancel", reason="wrong document"
        )
        assert "it never left" in cancelled.text
        assert await core.enquiry.status(waiting) is Status.FAILED
        again = await press(client, site, f"/messages/sent/{waiting}/resend", reason="it was right")
        assert f"/messages/sent/{waiting}" in again.text
        links = await core.enquiry.links(await core.enquiry.entry(Side.SENT, waiting))
        (new,) = links[waiting].resent_as
        assert f"/messages/sent/{new}" in (await client.get(f"/messages/sent/{waiting}")).text
        await press(client, site, "/operating/resume", kind="type", value="PAUSED-*")
        audit = (await client.get("/audit")).text
        for action in ("paused", "message cancelled", "message sent again", "resumed"):
            assert action in audit.lower()
        assert "oskar (console)" in audit


async def test_the_operator_is_told_what_cannot_be_paused(site: Site) -> None:
    async with site.signed_in("E1", "oskar") as client:
        wrong = await press(client, site, "/operating/pause", kind="channel", value="telegraph")
        assert wrong.status_code == 422
        assert "is no channel" in wrong.text


async def test_maintenance_is_begun_and_ended_and_health_says_so(site: Site) -> None:
    core = site.core("E1")
    async with site.signed_in("E1", "oskar") as client:
        begun = await press(client, site, "/operating/maintenance", do="begin", reason="new disks")
        try:
            assert "new disks" in begun.text
            with pytest.raises(Refusal) as refused:
                await core.submission.send("json/app", Document("E2", "SCHEDULE", b"document"))
            assert refused.value.rule is Rule.MAINTENANCE
            health = await core.health()
            assert health["maintenance"] is True
            assert health["holds"][0]["reason"] == "new disks"
        finally:
            await press(client, site, "/operating/maintenance", do="end")
        assert (await core.health())["maintenance"] is False
