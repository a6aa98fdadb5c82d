"""`gridpost.wire` does no I/O, and its tests cannot either."""

from support.no_network import pytest_runtest_setup

__all__ = ["pytest_runtest_setup"]
