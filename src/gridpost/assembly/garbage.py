"""How often a component that passes many messages looks for cycles of forgotten objects."""

from __future__ import annotations

import gc


def keep_what_is_made() -> None:
    """What was made until now stays: there is no point in looking for cycles in it again and again."""
    gc.collect()
    gc.freeze()


def spare_collections() -> None:
    """For a component whose messages and deliveries hold no cycles: they need no frequent look either.

    Not for one with an HTTP server for documents: a cycle in a request would keep a large one alive.
    """
    keep_what_is_made()
    gc.set_threshold(20_000, 20, 20)
