"""The administration API: who gets in, what it shows, and that everything done is journalled."""

from __future__ import annotations

from base64 import b64decode

import pytest

from gridpost.core.refusal import Refusal
from gridpost.core.registration import RegistrationStatus
from gridpost.services.operations.administrators import (
    Administrators,
    check_hash,
    hash_token,
    new_token,
)
from gridpost.wire.directory import decode_components
from support.component_directory import TestDirectory, request_for

API = "/admin/v1"


@pytest.fixture
async def directory() -> TestDirectory:
    return await TestDirectory().started()


async def pending(directory: TestDirectory, code: str = "E1") -> str:
    kit = await directory.invited(code)
    response = await directory.post((kit.certificate, kit.issuer), request_for(code)[0])
    return response.headers["location"].rpartition("/")[2]


@pytest.mark.parametrize("header", ["", "Basic YWxpY2U6c2VjcmV0", "Bearer ", "Bearer wrong"])
async def test_without_a_right_token_nothing_is_shown_or_done(
    directory: TestDirectory, header: str
) -> None:
    registration = await pending(directory)
    before = await directory.state()
    async with directory.administration() as client:
        client.headers["authorization"] = header
        for method, path in (
            ("GET", "/registrations"),
            ("POST", f"/registrations/{registration}/approve"),
            ("GET", "/export"),
            ("GET", "/journal"),
        ):
            response = await client.request(method, API + path)
            assert response.status_code == 401
        assert (await client.get("/metrics")).status_code == 401
        # A load balancer needs no token, and learns no names.
        health = await client.get("/health")
        assert health.status_code == 200
        assert "CD-1" not in health.text
    assert await directory.state() == before
    assert all(row.security for row in await directory.refusals())


@pytest.mark.req("503-10-a", component="component-directory")
async def test_what_an_administrator_does_is_journalled_with_name_and_reason(
    directory: TestDirectory,
) -> None:
    async with directory.administration() as client:
        one, two = await pending(directory, "E1"), await pending(directory, "E2")
        listed = (await client.get(f"{API}/registrations?status=PENDING")).json()["registrations"]
        assert {r["id"] for r in listed} == {one, two}
        approved = await client.post(f"{API}/registrations/{one}/approve")
        assert approved.json()["status"] == RegistrationStatus.APPROVED
        rejected = await client.post(
            f"{API}/registrations/{two}/reject", json={"reason": "no contract"}
        )
        assert rejected.json()["reason"] == "no contract"
        revoked = await client.post(f"{API}/components/E1/revoke", json={"reason": "stolen"})
        assert revoked.json() == {"revoked": "E1"}
        invited = await client.post(
            f"{API}/invitations", json={"code": "E3", "password": "over the phone"}
        )
        assert b64decode(invited.json()["bundle"]) == b"bundle"
        journal = (await client.get(f"{API}/journal")).json()["rows"]
    done = [
        (row["actor"], row["action"], row["target"], row["reason"])
        for row in journal
        if row["kind"] == "administration" and row["actor"] == "alice"
    ]
    assert ("alice", "registration rejected", "E2", "no contract") in done
    assert ("alice", "component revoked", "E1", "stolen") in done
    assert [d[1] for d in done].count("component invited") == 3
    assert any(d[1] == "registration approved" for d in done)


async def test_mistakes_are_refused_with_a_reason(directory: TestDirectory) -> None:
    registration = await pending(directory)
    async with directory.administration() as client:
        for method, path, body, status in (
            ("POST", f"/registrations/{registration}/reject", {}, 422),
            ("POST", f"/registrations/{registration}/reject", {"reason": " "}, 422),
            ("POST", "/registrations/unknown/approve", None, 404),
            ("GET", "/registrations?status=SOON", None, 422),
            ("POST", "/components/NOBODY/revoke", {"reason": "x"}, 404),
            ("POST", "/components/CD-1/revoke", {"reason": "x"}, 409),
            ("POST", "/invitations", {"code": "CD-1", "password": "x"}, 409),
            ("POST", "/invitations", {"code": "../x", "password": "x"}, 422),
            ("GET", "/journal?after=x", None, 422),
            ("GET", "/components/NOBODY", None, 404),
        ):
            response = await client.request(method, API + path, json=body)
            assert response.status_code == status, (path, response.text)
            assert response.json()["refused"]["message"]
        assert (await client.get(f"{API}/nothing")).status_code == 404
        assert (await client.delete(f"{API}/components")).status_code == 405
        bad = await client.post(
            f"{API}/registrations/{registration}/reject", content=b"[" * 100_000
        )
        assert bad.status_code == 413
        bad = await client.post(f"{API}/registrations/{registration}/reject", content=b"[" * 9000)
        assert bad.status_code == 422


async def test_the_content_is_shown_and_exported(directory: TestDirectory) -> None:
    await directory.register("E1")
    async with directory.administration() as client:
        shown = (await client.get(f"{API}/components")).json()
        assert {c["code"] for c in shown["components"]} == {"CD-1", "E1"}
        one = (await client.get(f"{API}/components/E1")).json()
        assert len(one["certificates"]) == 3
        exported = decode_components((await client.get(f"{API}/export")).content)
        assert {c.code for c in exported.answer.components} == {"CD-1", "E1"}
        health = (await client.get(f"{API}/health")).json()
        assert (health["components"], health["pending"]) == (2, 0)


async def test_tokens_are_kept_as_hashes_only() -> None:
    token = new_token()
    hashed = hash_token(token)
    assert token not in hashed
    administrators = Administrators({"alice": hashed, "bob": hash_token("other")})
    assert await administrators.who(f"Bearer {token}") == "alice"
    assert await administrators.who("bearer other") == "bob"
    administrators.replace({"bob": hash_token("other")})
    with pytest.raises(Refusal):
        await administrators.who(f"Bearer {token}")
    with pytest.raises(Refusal):
        check_hash(token)
