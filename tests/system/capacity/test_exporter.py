"""A capacity service exports its journal by itself."""

from __future__ import annotations

import pytest

from support.exporting import JOURNAL, follows, started
from support.network import Running

from .test_processes import say, write_configuration


@pytest.mark.timeout(600)
async def test_a_capacity_service_exports_its_journal_by_itself(rabbit, tmp_path):
    file = write_configuration(rabbit, tmp_path, rabbit.virtual_host())
    file.write_text(file.read_text() + JOURNAL.format("landed"))
    port = int(file.read_text().partition("[operations]\nport = ")[2].split()[0])
    await say("users", "--config", str(file), "--apply")
    async with started(Running("capacity", file, ready="active")) as running:
        await say("halt", "DE-DK", "--config", str(file))
        await follows(running, tmp_path / "home", tmp_path / "landed", port)
