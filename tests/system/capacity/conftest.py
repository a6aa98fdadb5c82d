from __future__ import annotations

from support.capacity_site import rabbit

__all__ = ["rabbit"]
