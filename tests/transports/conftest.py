"""What tests of transports share."""

from __future__ import annotations

import pytest

from support.authority import Authority, Clock


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def clock() -> Clock:
    return Clock()
