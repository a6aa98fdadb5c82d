"""One network for each test file: a directory, a broker and two endpoints that reach each other by it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from support.network import Network, network


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with network(tmp_path_factory.mktemp("network")) as found:
        await found.broker("B1", "[log]\nmessages = true\n")
        await found.start("B1")
        await found.endpoint("E1", "INDIRECT:B1", "DIRECT*=DIRECT", direct=True)
        await found.endpoint("E2", "INDIRECT:B1", "DIRECT*=DIRECT", direct=True)
        await found.start("E1", "E2")
        await found.known("E1", "E2")
        await found.known("E2", "E1")
        yield found
