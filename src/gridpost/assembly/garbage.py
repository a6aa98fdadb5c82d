"""How often a component that passes many messages looks for cycles of forgotten objects."""

from __future__ import annotations

import gc


def spare_collections() -> None:
    """What was made until now stays: there is no point in looking for cycles in it again and again.

    Messages and their deliveries hold no cycles, so those that pass need no frequent look either.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
