"""Token authentication (MADES 1.1 cl. 3.5.3): who asks, whatever the TLS connection says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from uuid import uuid4

from gridpost.core.identifiers import clip
from gridpost.core.node import NodeComponent
from gridpost.core.node_rules import authentication_certificate
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.version import node_accepts_endpoint
from gridpost.services.node.directory import NodeDirectory
from gridpost.wire.mades11.forms import SignedText
from gridpost.wire.mades11.token_signature import check_text

MAX_TOKENS_PER_CLIENT = 16


@dataclass(frozen=True, slots=True)
class _Token:
    code: str
    expires: datetime


class Authentication:
    """Tokens live in memory: whoever comes after a restart asks for a new one, and is judged anew."""

    def __init__(self, directory: NodeDirectory, clock: Clock) -> None:
        self._directory = directory
        self._clock = clock
        self._tokens: dict[str, _Token] = {}
        self._under_way: set[tuple[str, str]] = set()

    def issue(self, code: str, service_mversion: int | None) -> tuple[str, datetime]:
        now = self._clock.now()
        own = self._directory.settings.mversion
        if self._directory.find(code) is None:
            raise Refusal(Rule.PEER_UNKNOWN, f"{clip(code)} is not in the directory of this node")
        if service_mversion is not None and not node_accepts_endpoint(own, service_mversion):
            raise Refusal(
                Rule.ENDPOINT_VERSION,
                f"this node of MADES version {own} has no service of version {service_mversion}",
            )
        self._forget(code, now)
        token, expires = str(uuid4()), now + self._directory.settings.token_validity
        self._tokens[token] = _Token(code, expires)
        return token, expires

    def client(self, shown: SignedText) -> NodeComponent:
        """All three checks of cl. 3.5.3."""
        now = self._clock.now()
        found = self._tokens.get(shown.text)
        if found is None or found.expires <= now:
            raise Refusal(Rule.TOKEN_UNKNOWN, "the token is unknown or has expired: get a new one")
        component = self._directory.find(found.code)
        certificate = authentication_certificate(component, found.code, shown.certificate_id, now)
        check_text(shown.text, shown.signature, certificate.der, "token")
        assert component is not None
        return component

    def check_component_id(self, shown: SignedText) -> NodeComponent:
        """Tables 41 and 60: a component ID that its owner signed."""
        component = self._directory.find(shown.text)
        certificate = authentication_certificate(
            component, shown.text, shown.certificate_id, self._clock.now()
        )
        check_text(shown.text, shown.signature, certificate.der, "component ID")
        assert component is not None
        return component

    @contextmanager
    def one_transfer(self, code: str, kind: str) -> Iterator[None]:
        """Cl. 3.5.4, 3.8: one at a time for each client and kind of request."""
        if (code, kind) in self._under_way:
            raise Refusal(Rule.TRANSFER_UNDER_WAY, f"{kind} of {code} is being processed already")
        self._under_way.add((code, kind))
        try:
            yield
        finally:
            self._under_way.discard((code, kind))

    def _forget(self, code: str, now: datetime) -> None:
        self._tokens = {t: found for t, found in self._tokens.items() if found.expires > now}
        mine = [t for t, found in self._tokens.items() if found.code == code]
        for token in mine[: max(0, len(mine) - MAX_TOKENS_PER_CLIENT + 1)]:
            del self._tokens[token]
