"""Tests of core and wire cannot open a socket, whatever else they do."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TESTS = """
import asyncio, socket
import pytest

def test_tcp():
    # pytest-socket warns before it raises, and warnings are errors
    with pytest.raises(Exception, match="tried to use socket"):
        socket.create_connection(("127.0.0.1", 9))

def test_event_loop():
    asyncio.run(asyncio.sleep(0))
"""


@pytest.mark.parametrize("folder", ["core", "wire"])
def test_sockets_are_refused_and_event_loops_still_work(pytester: pytest.Pytester, folder):
    pytester.makeconftest((ROOT / f"tests/{folder}/conftest.py").read_text())
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(TESTS)
    pytester.runpytest().assert_outcomes(passed=2)
