"""What several conformance tests share."""

from __future__ import annotations

from support.old_site import old_site

__all__ = ["old_site"]
