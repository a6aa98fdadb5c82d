"""Who is at the other end of a connection, in both directions (503 cl. 8.3.2, 8.4.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gridpost.core.certificate import Certificate
from gridpost.core.component import Component
from gridpost.core.links import Peer, ServerCheck
from gridpost.core.peer_identity import PeerIdentities
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory
from gridpost.wire.x509 import Purpose, VerifiedChain, verify_chain


class Peers:
    """Judges verified chains by the copy of the directory that is in force."""

    def __init__(
        self,
        clock: Clock,
        directory: Callable[[], Directory],
        roots: Callable[[], Sequence[bytes]],
    ) -> None:
        self._clock = clock
        self._directory = directory
        self._roots = roots
        self._known: tuple[Directory, PeerIdentities] | None = None

    def client(self, peer: Peer) -> tuple[Component, VerifiedChain]:
        """Who has come to us."""
        verified = self._verified(peer, Purpose.CLIENT)
        return self.identify(verified.leaf, verified.issuer), verified

    def server(self, code: str) -> ServerCheck:
        """Whether what answered is `code` (see divergences, peer identity)."""

        async def check(peer: Peer) -> None:
            verified = self._verified(peer, Purpose.SERVER)
            found = self.identify(verified.leaf, verified.issuer)
            if found.code != code:
                raise Refusal(
                    Rule.CERTIFICATE_NOT_OF_COMPONENT,
                    f"the server that was dialled as {code} is {found.code}",
                )

        return check

    def identify(self, leaf: Certificate, issuer: bytes) -> Component:
        directory = self._directory()
        if self._known is None or self._known[0] is not directory:
            self._known = directory, PeerIdentities(directory)
        return self._known[1].identify(leaf, issuer, self._clock.now())

    def _verified(self, peer: Peer, purpose: Purpose) -> VerifiedChain:
        # The root that ends a verified chain is ours, not the peer's.
        return verify_chain(peer.chain[:-1], self._roots(), self._clock.now(), purpose)
