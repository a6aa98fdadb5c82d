"""Signing in with an OpenID provider: authorization code with PKCE, state and nonce.

The provider says who somebody is; which role that gives is decided here, by one claim.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import httpx
import jwt

from gridpost.console.roles import Role
from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule

_PENDING = timedelta(minutes=10)
_MOST = 1000
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
_CALLBACK = "/login/oidc/callback"


@dataclass(frozen=True, slots=True)
class OidcSettings:
    issuer: str
    client_id: str
    client_secret: str = field(repr=False)
    address: str
    """Under which people's browsers reach this console: the provider sends them back to it."""
    roles: Mapping[str, Role]
    """Value of the claim -> role."""
    role_claim: str = "groups"
    name_claim: str = "preferred_username"
    scopes: tuple[str, ...] = ("openid", "profile")
    label: str = "single sign-on"
    ca: str = ""
    """File with the CA of the provider (PEM), where it is none that the system trusts."""
    proxy: str = ""


@dataclass(frozen=True, slots=True)
class _Attempt:
    nonce: str
    verifier: str
    browser: bytes
    began: datetime


class OidcDoor:
    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._attempts: dict[str, _Attempt] = {}
        self._configuration: dict[str, Any] | None = None
        self._keys: dict[str, jwt.PyJWK] = {}

    async def begin(self, now: datetime) -> tuple[str, str]:
        """Where the browser goes, and a secret that it brings back in a cookie."""
        configuration = await self._discover()
        self._tidy(now)
        state, nonce = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        verifier, browser = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
        self._attempts[state] = _Attempt(nonce, verifier, _digest(browser), now)
        challenge = urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
        query = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self._redirect,
            "scope": " ".join(self.settings.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        return f"{configuration['authorization_endpoint']}?{urlencode(query)}", browser

    async def finish(
        self, query: Mapping[str, str], browser: str, now: datetime
    ) -> tuple[str, Role]:
        """Name and role of whoever came back; or a refusal."""
        self._tidy(now)
        attempt = self._attempts.pop(query.get("state", ""), None)
        if attempt is None or not hmac.compare_digest(attempt.browser, _digest(browser)):
            raise Refusal(Rule.ACCESS_DENIED, "this sign-in was not begun here: begin again")
        if "error" in query or not query.get("code"):
            told = clip(query.get("error_description") or query.get("error", "no code"))
            raise Refusal(Rule.ACCESS_DENIED, f"the provider did not let you in: {told}")
        claims = await self._redeem(query["code"], attempt, now)
        name = claims.get(self.settings.name_claim) or claims.get("sub")
        if not isinstance(name, str) or not name.isprintable():
            raise Refusal(Rule.ACCESS_DENIED, "the provider did not say who you are")
        return f"{clip(name)}", self._role(claims)

    def _role(self, claims: Mapping[str, Any]) -> Role:
        told = claims.get(self.settings.role_claim, ())
        values = [told] if isinstance(told, str) else told if isinstance(told, list) else []
        found = [
            self.settings.roles[v]
            for v in values
            if isinstance(v, str) and v in self.settings.roles
        ]
        if not found:
            raise Refusal(
                Rule.ACCESS_DENIED,
                "you are known, but nothing here is open to you",
                f"the claim '{self.settings.role_claim}' names no role of this console",
            )
        return max(found, key=lambda role: [*Role].index(role))

    @property
    def _redirect(self) -> str:
        return self.settings.address.rstrip("/") + _CALLBACK

    async def _redeem(self, code: str, attempt: _Attempt, now: datetime) -> dict[str, Any]:
        configuration = await self._discover()
        async with self._client() as client:
            answer = await _answer(
                client.post(
                    configuration["token_endpoint"],
                    data={
                        "grant_type": "authorization_code",
                        "code": code,
                        "redirect_uri": self._redirect,
                        "client_id": self.settings.client_id,
                        "code_verifier": attempt.verifier,
                    },
                    auth=(self.settings.client_id, self.settings.client_secret)
                    if self.settings.client_secret
                    else httpx.USE_CLIENT_DEFAULT,
                )
            )
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise Refusal(Rule.ACCESS_DENIED, "the provider answered without an ID token")
        try:
            key = await self._key(jwt.get_unverified_header(token).get("kid", ""))
            claims: dict[str, Any] = await asyncio.to_thread(
                jwt.decode,
                token,
                key,
                algorithms=[a for a in _ALGORITHMS if _fits(a, key)],
                audience=self.settings.client_id,
                issuer=configuration["issuer"],
                leeway=30,
                options={"require": ["exp", "iat", "aud", "iss", "sub", "nonce"]},
            )
        except jwt.PyJWTError as error:
            raise Refusal(Rule.ACCESS_DENIED, "the ID token is not good", str(error)) from None
        if not hmac.compare_digest(str(claims["nonce"]).encode(), attempt.nonce.encode()):
            raise Refusal(Rule.ACCESS_DENIED, "the ID token answers another sign-in")
        return claims

    async def _discover(self) -> dict[str, Any]:
        if self._configuration is None:
            url = self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
            async with self._client() as client:
                found = await _answer(client.get(url))
            # OpenID Connect Discovery 4.3: a document that speaks for another issuer is an attack.
            if found.get("issuer") != self.settings.issuer:
                raise Refusal(Rule.ACCESS_DENIED, "the provider calls itself by another name")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                if not str(found.get(name, "")).startswith("https://"):
                    raise Refusal(Rule.ACCESS_DENIED, f"the provider has no https {name}")
            self._configuration = found
        return self._configuration

    async def _key(self, kid: str) -> jwt.PyJWK:
        if kid not in self._keys:
            configuration = await self._discover()
            async with self._client() as client:
                found = await _answer(client.get(configuration["jwks_uri"]))
            keys = jwt.PyJWKSet.from_dict(found).keys
            self._keys = {key.key_id or "": key for key in keys if key.key_type != "oct"}
        if kid not in self._keys:
            raise Refusal(Rule.ACCESS_DENIED, "the ID token is signed with an unknown key")
        return self._keys[kid]

    def _client(self) -> httpx.AsyncClient:
        import ssl

        verify = ssl.create_default_context(cafile=self.settings.ca or None)
        return httpx.AsyncClient(
            timeout=15, verify=verify, trust_env=False, proxy=self.settings.proxy or None
        )

    def _tidy(self, now: datetime) -> None:
        for state in [s for s, a in self._attempts.items() if now - a.began > _PENDING]:
            del self._attempts[state]
        while len(self._attempts) >= _MOST:
            del self._attempts[next(iter(self._attempts))]


async def _answer(asking: Any) -> dict[str, Any]:
    try:
        response = await asking
        response.raise_for_status()
        found = response.json()
    except (httpx.HTTPError, ValueError) as error:
        raise Refusal(
            Rule.UNREACHABLE, "the OpenID provider does not answer as it should", str(error)
        ) from None
    if not isinstance(found, dict):
        raise Refusal(Rule.UNREACHABLE, "the OpenID provider does not answer as it should")
    return found


def _fits(algorithm: str, key: jwt.PyJWK) -> bool:
    kinds = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
    return key.key_type == kinds[algorithm[:2]]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
