"""Whoever is not let in, has another role or posts from elsewhere gets nothing done; over plain HTTP."""

from __future__ import annotations

import re

import httpx
import pytest

from console.conftest import Site

# The network takes its time on a busy machine.
pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]

MESSAGE = "/messages/sent/00000000-0000-4000-8000-000000000000"
PAGES = {
    "CD-1": ["/", "/registrations", "/components", "/components/E1", "/directories", "/audit"],
    "B1": ["/", "/connections", "/restriction", "/refusals", "/audit"],
    "E1": [
        "/",
        "/messages",
        "/send",
        "/paths",
        "/paths/which",
        "/operating",
        "/settings",
        "/audit",
        MESSAGE,
    ],
}
KINDS = {"CD-1": "component-directory", "B1": "broker", "E1": "endpoint"}
ACTIONS = {
    "CD-1": [
        "/registrations/x/approve",
        "/registrations/x/reject",
        "/components/E1/revoke",
        "/logout",
    ],
    "B1": ["/queues/E1/release", "/restriction", "/logout"],
    "E1": [
        "/send",
        "/test",
        "/operating/pause",
        "/operating/resume",
        "/operating/maintenance",
        "/messages/sent/x/resend",
        "/messages/sent/x/cancel",
        "/messages/received/x/release",
        "/messages/received/x/drop",
        "/paths",
        "/settings",
        "/logout",
    ],
}
# What a role may not do; each is tried with a session and a good token.
DENIED = {
    "vera": [
        ("CD-1", "/registrations/x/approve"),
        ("CD-1", "/registrations/x/reject"),
        ("CD-1", "/components/E1/revoke"),
        ("B1", "/queues/E1/release"),
        ("B1", "/restriction"),
        ("E1", "/send"),
        ("E1", "/test"),
        ("E1", "/operating/pause"),
        ("E1", "/operating/resume"),
        ("E1", "/operating/maintenance"),
        ("E1", "/messages/sent/x/resend"),
        ("E1", "/messages/sent/x/cancel"),
        ("E1", "/messages/received/x/release"),
        ("E1", "/messages/received/x/drop"),
        ("E1", "/paths"),
        ("E1", "/settings"),
    ],
    "oskar": [
        ("CD-1", "/components/E1/revoke"),
        ("B1", "/restriction"),
        ("E1", "/paths"),
        ("E1", "/settings"),
    ],
}


async def token_of(client: httpx.AsyncClient) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', (await client.get("/")).text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, marks=pytest.mark.req("503-10-l", component=component))
        for code, component in KINDS.items()
    ],
)
async def test_a_console_is_there_over_https_and_after_signing_in_only(
    site: Site, code: str
) -> None:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as plain:
        with pytest.raises(httpx.HTTPError):
            await plain.get(site.url(code).replace("https:", "http:"))
    async with site.visit(code) as unknown:
        assert (await unknown.get("/")).status_code == 303
    async with site.signed_in(code, "vera") as client:
        assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize("code", PAGES)
async def test_without_a_session_every_page_leads_to_the_door(site: Site, code: str) -> None:
    async with site.visit(code) as client:
        for page in PAGES[code]:
            answer = await client.get(page)
            assert answer.status_code == 303, page
            assert answer.headers["location"].startswith("/login"), page
            polled = await client.get(page, headers={"hx-request": "true"})
            assert (polled.status_code, polled.headers["hx-redirect"]) == (401, "/login"), page


@pytest.mark.parametrize("code", ACTIONS)
async def test_without_a_session_nothing_is_done(site: Site, code: str) -> None:
    async with site.visit(code) as client:
        for action in ACTIONS[code]:
            answer = await client.post(action, headers={"origin": site.url(code)})
            assert answer.status_code == 401, action


@pytest.mark.parametrize("code", ACTIONS)
async def test_a_post_needs_the_token_of_its_session(site: Site, code: str) -> None:
    async with site.signed_in(code, "ada") as client, site.signed_in(code, "oskar") as other:
        foreign = await token_of(other)
        for action in ACTIONS[code]:
            for data in ({}, {"csrf": "guessed"}, {"csrf": foreign}):
                answer = await client.post(action, data=data, headers={"origin": site.url(code)})
                assert answer.status_code == 403, action
                assert "came from no page of ours" in answer.text
        assert (await client.get("/")).status_code == 200


@pytest.mark.parametrize("code", ACTIONS)
async def test_a_post_from_another_site_is_refused_even_with_the_token(
    site: Site, code: str
) -> None:
    own = site.url(code)
    forged = (
        {},
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": own.replace("https", "http")},
        {"origin": own + "0"},
        {"origin": own, "sec-fetch-site": "cross-site"},
        {"referer": "https://evil.example/page"},
    )
    async with site.signed_in(code, "ada") as client:
        data = {"csrf": await token_of(client)}
        for headers in forged:
            for action in ACTIONS[code]:
                answer = await client.post(action, data=data, headers=headers)
                assert answer.status_code == 403, (action, headers)
                assert "comes from another site" in answer.text


@pytest.mark.parametrize(
    ("name", "code", "action"),
    [(name, code, action) for name, denied in DENIED.items() for code, action in denied],
)
async def test_a_role_that_may_not_do_it_is_refused(
    site: Site, name: str, code: str, action: str
) -> None:
    async with site.signed_in(code, name) as client:
        answer = await client.post(
            action,
            data={"csrf": await token_of(client)},
            headers={"origin": site.url(code)},
        )
    assert answer.status_code == 403
    assert "it takes the role" in answer.text


@pytest.mark.parametrize("page", ["proof", "document"])
async def test_documents_leave_only_with_the_role_for_it(site: Site, page: str) -> None:
    where = f"/messages/sent/{site.sent['received']}/{page}"
    async with site.signed_in("E1", "vera") as viewer:
        assert (await viewer.get(where)).status_code == 403
        assert (await viewer.get("/audit")).status_code == 403
        assert (await viewer.get("/settings")).status_code == 403
    async with site.signed_in("E1", "oskar") as operator:
        answer = await operator.get(where)
        assert answer.status_code == 200
        assert answer.headers["content-disposition"].startswith("attachment")
        assert f"{page} downloaded" in (await operator.get("/audit")).text


async def test_a_login_form_of_another_site_signs_nobody_in(site: Site) -> None:
    async with site.visit("E1") as client:
        answer = await client.post(
            "/login",
            data={"name": "ada", "password": "a password of the test"},
            headers={"origin": "https://evil.example"},
        )
    assert answer.status_code == 403
    assert not answer.cookies


@pytest.mark.parametrize("to", ["//evil.example/", "https://evil.example/", "/\\evil.example", ""])
async def test_the_door_leads_nowhere_else(site: Site, to: str) -> None:
    async with site.visit("E1") as client:
        answer = await client.post(
            "/login",
            data={"name": "vera", "password": "a password of the test", "to": to},
            headers={"origin": site.url("E1")},
        )
    assert answer.headers["location"] == "/"


async def test_the_cookie_is_for_this_console_and_for_no_script(site: Site) -> None:
    names = set()
    for code in PAGES:
        async with site.visit(code) as client:
            answer = await client.post(
                "/login",
                data={"name": "vera", "password": "a password of the test"},
                headers={"origin": site.url(code)},
            )
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-")
        for part in ("HttpOnly", "Secure", "SameSite=strict", "Path=/"):
            assert part in cookie
        names.add(cookie.partition("=")[0])
    # Cookies know no ports: three consoles on one host must not sign each other out.
    assert len(names) == 3


@pytest.mark.parametrize("code", PAGES)
async def test_pages_hold_no_script_and_no_style_of_their_own(site: Site, code: str) -> None:
    async with site.signed_in(code, "ada") as client:
        for page in [*PAGES[code], "/static/console.js", "/no-such-page"]:
            answer = await client.get(page)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            if answer.headers["content-type"].startswith("text/html"):
                assert answer.headers["cache-control"] == "no-store"
                assert not re.search(r"<script(?![^>]*\ssrc=)", answer.text), page
                assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", answer.text), page
                assert "http://" not in answer.text.replace("http://www.w3.org", "")


async def test_what_others_wrote_is_text_and_never_a_tag(site: Site) -> None:
    async with site.signed_in("E1", "ada") as client:
        page = await client.get("/messages", params={"peer": '"><script>alert(1)</script>'})
        assert "<script>alert" not in page.text
        tool = await client.get("/paths/which", params={"peer": "<b>x</b>", "type": "A"})
        assert "<b>x</b>" not in tool.text


async def test_an_action_and_a_refusal_stand_in_the_journal_with_who_and_when(site: Site) -> None:
    async with site.signed_in("E1", "oskar") as client:
        await client.post(
            "/settings", data={"csrf": await token_of(client)}, headers={"origin": site.url("E1")}
        )
        actions = (await client.get("/audit")).text
        refusals = (await client.get("/audit", params={"kind": "refusal"})).text
    assert "oskar (console)" in actions
    assert "signed in" in actions
    assert "an operator may not do this" in refusals
    assert "security" in refusals


@pytest.mark.req("503-7.3.1-b", component="endpoint")
async def test_inconsistent_paths_are_named_and_not_saved(site: Site) -> None:
    before = site.file("E1").read_text(encoding="utf-8")
    async with site.signed_in("E1", "ada") as client:
        mark = re.search(r'name="mark" value="([^"]+)"', (await client.get("/paths")).text)
        assert mark is not None
        rows = {
            "message_type": ["A", "A", "B*B"],
            "path": ["INDIRECT:B1", "DIRECT", "INDIRECT:B1"],
            "senders": ["*", "*", "*"],
            "valid_from": ["2026-01-01 00:00", "2026-02-01 00:00", ""],
            "valid_until": ["2026-03-01 00:00", "", ""],
        }
        answer = await client.post(
            "/paths",
            data={"csrf": await token_of(client), "mark": mark[1], "do": "save", **rows},
            headers={"origin": site.url("E1")},
        )
    assert answer.status_code == 422
    assert "two message-paths for A overlap" in answer.text
    assert "path 3:" in answer.text
    assert site.file("E1").read_text(encoding="utf-8") == before
