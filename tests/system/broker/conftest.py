"""One broker process for each test file; tests use codes of their own where they must not meet."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.broker_process import BrokerNetwork, broker_network


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrokerNetwork]:
    async with broker_network(tmp_path_factory.mktemp("broker")) as found:
        yield found
