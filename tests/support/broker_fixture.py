"""pytest plugin: a broker process for a test file, or one of its own for a single test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gridpost.core.queues import Capabilities
from gridpost.stores.rabbitmq import RabbitQueueStore
from support.broker_process import BrokerNetwork, broker_network


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where the broker's store has been chosen, tests of what it does not have are left out."""
    needed = item.get_closest_marker("capability")
    if needed is not None and not getattr(_chosen(), needed.args[0]):
        pytest.skip(f"this store does not have it: {needed.args[0]}")


def _chosen() -> Capabilities:
    if os.environ.get("GRIDPOST_TEST_STORE") == "rabbitmq":
        return RabbitQueueStore.capabilities
    return Capabilities()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def broker(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BrokerNetwork]:
    """Shared by a file: tests use codes of their own where they must not meet."""
    async with broker_network(tmp_path_factory.mktemp("broker")) as network:
        yield network
