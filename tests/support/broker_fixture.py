"""pytest plugin: a broker process for a test file, or one of its own for a single test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.broker_process import BrokerNetwork, broker_network


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrokerNetwork]:
    """Shared by a file: tests use codes of their own where they must not meet."""
    async with broker_network(tmp_path_factory.mktemp("broker")) as network:
        yield network
