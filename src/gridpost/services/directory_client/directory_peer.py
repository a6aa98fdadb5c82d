"""Whether a server is the component-directory that was dialled (503 cl. 8.4.1; REPAIRS 8.3.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gridpost.core.component import Component
from gridpost.core.enrolment import Home
from gridpost.core.https import Authorise
from gridpost.core.peer_identity import identify
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.core.synchronisation import Directory, Subsystem
from gridpost.wire.x509 import Purpose, verify_chain


def is_directory(
    entry: Component,
    home: Home | None,
    roots: Callable[[], Sequence[bytes]],
    clock: Clock,
) -> Authorise:
    """Judges a chain against an entry, and against what the installation bundle said of it.

    Both count: the entry may be too old to know a renewal that an extension has shown us.
    """
    known = entry
    if home is not None and home.code == entry.code:
        ders = {c.der for c in entry.certificates}
        more = tuple(c for c in home.certificates if c.der not in ders)
        known = replace(entry, certificates=entry.certificates + more)
    directory = Directory.of(
        [Subsystem(known.code, "", (replace(known, component_directory=known.code),))]
    )

    def authorise(chain: Sequence[bytes]) -> None:
        at = clock.now()
        verified = verify_chain(chain, roots(), at, Purpose.SERVER)
        found = identify(verified.leaf, verified.issuer, directory, at)
        if found.code != known.code:
            raise Refusal(
                Rule.CERTIFICATE_NOT_OF_COMPONENT,
                f"the server that was dialled as {known.code} is {found.code}",
            )

    return authorise
