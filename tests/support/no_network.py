"""Hooks for folders whose tests must not open a socket; their conftest imports them.

Unix sockets stay possible: every asyncio event loop holds a pair of them.
"""

from __future__ import annotations

import pytest
from pytest_socket import disable_socket


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    # pytest-socket lifts the restriction again when the test is torn down.
    disable_socket(allow_unix_socket=True)
