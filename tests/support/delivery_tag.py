"""The tag of a delivery as proton's C library has it."""

from __future__ import annotations

from typing import Any

from gridpost.transports.amqp10.engine import ffi, lib


def tag_of(delivery: Any) -> bytes:
    tag = lib.pn_delivery_tag(delivery._pn)
    return bytes(ffi.buffer(tag.start, tag.size))
