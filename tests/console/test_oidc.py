"""Signing in with an OpenID provider: one that runs here over real TLS and can be told to lie."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import jwt
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from console.conftest import drive
from console.test_frame import SETTINGS, URL, World
from gridpost.console.oidc import OidcSettings
from gridpost.console.roles import Role
from gridpost.core.https import TlsCredentials
from gridpost.transports.free_port import free_port
from gridpost.transports.https import ClientCertificate, ServerTls, serve
from support.strict_certificate import identified


@dataclass
class Provider:
    """Remembers what it was asked, and signs what the test wants."""

    url: str = ""
    key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    claims: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    nonce: str = ""
    challenge: str = ""
    issuer: str = ""
    signing: rsa.RSAPrivateKey | None = None
    tls: ServerTls | None = None

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.configuration),
                Route("/keys", self.keys),
                Route("/token", self.token, methods=["POST"]),
                Route("/authorize", self.authorize),
            ]
        )

    async def configuration(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.issuer or self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
            }
        )

    async def keys(self, request: Request) -> Response:
        jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return JSONResponse({"keys": [jwk | {"kid": "one", "use": "sig", "alg": "RS256"}]})

    async def authorize(self, request: Request) -> Response:
        """Asks nobody anything."""
        query = request.query_params
        self.nonce, self.challenge = query["nonce"], query["code_challenge"]
        back = urlencode({"state": query["state"], "code": "the code"})
        return RedirectResponse(f"{query['redirect_uri']}?{back}", 303)

    async def token(self, request: Request) -> Response:
        form = await request.form()
        self.asked = {name: str(value) for name, value in form.items()}
        digest = hashlib.sha256(self.asked["code_verifier"].encode()).digest()
        if urlsafe_b64encode(digest).rstrip(b"=").decode() != self.challenge:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = datetime.now(UTC)
        claims = {
            "iss": self.url,
            "aud": "console",
            "sub": "42",
            "nonce": self.nonce,
            "iat": now,
            "exp": now + timedelta(minutes=5),
            "preferred_username": "olga",
            "groups": ["grid-operators", "others"],
        } | self.claims
        token = jwt.encode(claims, self.signing or self.key, "RS256", headers={"kid": "one"})
        return JSONResponse({"id_token": token, "token_type": "Bearer"})


@pytest_asyncio.fixture
async def provider(tmp_path: Path) -> AsyncIterator[tuple[Provider, OidcSettings]]:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provider")])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .add_extension(x509.BasicConstraints(True, None), True)
    )
    own = key.public_key()
    certificate = identified(builder, own, own, ca=True).sign(key, hashes.SHA256())
    ca = tmp_path / "provider.crt"
    ca.write_bytes(certificate.public_bytes(Encoding.PEM))
    shown = TlsCredentials(
        (certificate.public_bytes(Encoding.DER),),
        key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()),
        (),
    )
    made = Provider()
    tls = made.tls = ServerTls(lambda: shown, ClientCertificate.NONE)
    async with serve(made.app(), "127.0.0.1", 0, tls) as server:
        made.url = f"https://127.0.0.1:{server.port}"
        yield (
            made,
            OidcSettings(
                made.url,
                "console",
                "secret",
                URL,
                {"grid-operators": Role.OPERATOR, "readers": Role.VIEWER},
                ca=str(ca),
            ),
        )


async def go(world: World, provider: Provider, client: httpx.AsyncClient) -> httpx.Response:
    """Through the provider and back, as a browser goes."""
    begun = await client.get("/login/oidc")
    assert begun.status_code == 303, begun.text
    address = urlsplit(begun.headers["location"])
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    assert query["code_challenge_method"] == "S256"
    assert query["redirect_uri"] == f"{URL}/login/oidc/callback"
    provider.nonce, provider.challenge = query["nonce"], query["code_challenge"]
    return await client.get(
        "/login/oidc/callback", params={"state": query["state"], "code": "the code"}
    )


async def test_a_claim_gives_the_role(provider: tuple[Provider, OidcSettings]) -> None:
    made, settings = provider
    world = World(replace(SETTINGS, oidc=settings))
    async with world.client() as client:
        back = await go(world, made, client)
        assert back.status_code == 200
        # A strict cookie comes along only when this page leads on, not with a redirect.
        assert 'http-equiv="refresh"' in back.text
        assert "SameSite=strict" in back.headers["set-cookie"]
        page = await client.get("/")
        assert "olga" in page.text
        assert "operator" in page.text
        assert ("olga (console)", "signed in") in await world.actions()
        # Without the provider in the configuration its people are out.
        world.frame.reconfigure(SETTINGS)
        assert (await client.get("/")).status_code == 303


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "of another sign-in"},
        {"aud": "another client"},
        {"iss": "https://evil.example"},
        {"exp": datetime(2020, 1, 1, tzinfo=UTC)},
        {"groups": ["others"]},
        {"groups": {"grid-operators": True}},
        {"preferred_username": "x\ny"},
    ],
)
async def test_a_token_that_is_not_for_us_lets_nobody_in(
    provider: tuple[Provider, OidcSettings], claims: dict[str, Any]
) -> None:
    made, settings = provider
    made.claims = claims
    world = World(replace(SETTINGS, oidc=settings))
    async with world.client() as client:
        assert (await go(world, made, client)).status_code == 403
        assert (await client.get("/")).status_code == 303


async def test_a_token_with_a_foreign_signature_lets_nobody_in(
    provider: tuple[Provider, OidcSettings],
) -> None:
    made, settings = provider
    made.signing = rsa.generate_private_key(65537, 2048)
    world = World(replace(SETTINGS, oidc=settings))
    async with world.client() as client:
        assert (await go(world, made, client)).status_code == 403


async def test_an_answer_to_a_sign_in_of_another_browser_lets_nobody_in(
    provider: tuple[Provider, OidcSettings],
) -> None:
    _, settings = provider
    world = World(replace(SETTINGS, oidc=settings))
    async with world.client() as thief, world.client() as victim:
        begun = await thief.get("/login/oidc")
        query = parse_qs(urlsplit(begun.headers["location"]).query)
        answer = {"state": query["state"][0], "code": "of the thief"}
        assert (await victim.get("/login/oidc/callback", params=answer)).status_code == 403
        # And the state works once only.
        assert (await thief.get("/login/oidc/callback", params=answer)).status_code == 403


async def test_a_provider_that_speaks_for_another_is_not_used(
    provider: tuple[Provider, OidcSettings],
) -> None:
    made, settings = provider
    made.issuer = "https://evil.example"
    world = World(replace(SETTINGS, oidc=settings))
    async with world.client() as client:
        assert (await client.get("/login/oidc")).status_code == 403


async def test_without_a_provider_there_is_no_such_door() -> None:
    world = World()
    async with world.client() as client:
        assert (await client.get("/login/oidc")).status_code == 404
        assert "/login/oidc" not in (await client.get("/login")).text


@pytest.mark.timeout(600)
async def test_a_person_signs_in_through_the_provider_in_a_browser(
    provider: tuple[Provider, OidcSettings],
) -> None:
    """The login page with its second door, and the page that leads on, judged by axe."""
    made, settings = provider
    assert made.tls is not None
    port = free_port()
    here = f"https://127.0.0.1:{port}"
    world = World(replace(SETTINGS, oidc=replace(settings, address=here)))
    place: Any = SimpleNamespace(ports={"E1": port}, url=lambda code: here, sent={}, pending={})
    async with serve(world.app, "127.0.0.1", port, made.tls):
        assert await drive(place, "oidc", provider=made.url) == {"single sign-on": ""}
    assert ("olga (console)", "signed in") in await world.actions()
