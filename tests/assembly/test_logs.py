"""Log lines: what is written, and when it is there."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import pytest
import structlog
import structlog.testing
from hypothesis import given
from hypothesis import strategies as st

from gridpost.assembly.logs import _render, log_to


class Colour(StrEnum):
    RED = "red"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers, root.level
    configured = structlog.get_config()
    try:
        log_to(stream, "component-under-test")
        yield stream
    finally:
        structlog.configure(**configured)
        root.handlers = before
        root.setLevel(level)


def written(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def events(stream: io.StringIO) -> list[object]:
    return [line["event"] for line in written(stream)]


@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.text()
            | st.binary()
            | st.just(Path("/somewhere"))
            | st.sampled_from(Colour),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    )
)
def test_a_line_is_what_json_would_write(event: dict[str, object]) -> None:
    assert _render(None, "info", dict(event)) == json.dumps(event, default=repr)


def test_a_line_outside_of_a_loop_is_there_at_once(stream: io.StringIO) -> None:
    structlog.get_logger("test").info("told", number=1)
    (line,) = written(stream)
    timestamp = line.pop("timestamp")
    assert isinstance(timestamp, str)
    assert timestamp.endswith("Z")
    assert line == {
        "number": 1,
        "event": "told",
        "component": "component-under-test",
        "level": "info",
    }


def test_what_is_bound_to_a_logger_stands_in_its_lines(stream: io.StringIO) -> None:
    log = structlog.get_logger("test").bind(number=1, place="here")
    log.info("told %s", "twice", place="there")
    log.debug("not told")
    (line,) = written(stream)
    del line["timestamp"]
    assert line == {
        "number": 1,
        "place": "there",
        "event": "told twice",
        "component": "component-under-test",
        "level": "info",
    }


def test_a_timestamp_is_that_of_the_moment(stream: io.StringIO) -> None:
    before = datetime.now(UTC)
    structlog.get_logger("test").info("told")
    (line,) = written(stream)
    assert before <= datetime.fromisoformat(str(line["timestamp"])) <= datetime.now(UTC)
    assert len(str(line["timestamp"])) == len("2026-01-31T12:00:00.000000Z")


def test_who_captures_lines_gets_them(stream: io.StringIO) -> None:
    log = structlog.get_logger("test")
    log.info("before")
    with structlog.testing.capture_logs() as captured:
        log.info("meanwhile", number=1)
    assert captured == [{"event": "meanwhile", "number": 1, "log_level": "info"}]
    assert events(stream) == ["before"]


def test_lines_of_one_turn_of_the_loop_leave_together_at_its_end(stream: io.StringIO) -> None:
    async def tell() -> None:
        log = structlog.get_logger("test")
        for turn in range(3):
            log.info("first", turn=turn)
            log.info("second", turn=turn)
            assert events(stream) == ["first", "second"] * turn
            await asyncio.sleep(0)
            assert events(stream) == ["first", "second"] * (turn + 1)

    asyncio.run(tell())


def test_a_warning_leaves_at_once_behind_what_was_told_before_it(stream: io.StringIO) -> None:
    async def tell() -> None:
        log = structlog.get_logger("test")
        log.info("first")
        log.warning("second")
        assert events(stream) == ["first", "second"]
        log.info("third")
        try:
            raise ValueError("what went wrong")
        except ValueError:
            log.exception("fourth")
        assert events(stream) == ["first", "second", "third", "fourth"]
        log.info("fifth")
        logging.getLogger("library").warning("sixth of %s", "a library")
        assert events(stream)[4:] == ["fifth", "sixth of a library"]

    asyncio.run(tell())
    assert "what went wrong" in str(written(stream)[3]["exception"])
    assert [line["level"] for line in written(stream)] == [
        "info", "warning", "info", "error", "info", "warning",
    ]  # fmt: skip


def test_what_another_thread_tells_leaves_at_once_and_in_order(stream: io.StringIO) -> None:
    async def tell() -> None:
        log = structlog.get_logger("test")
        log.info("first")
        await asyncio.to_thread(log.info, "second")
        assert events(stream) == ["first", "second"]
        log.info("third")

    asyncio.run(tell())
    assert events(stream) == ["first", "second", "third"]


def test_a_second_loop_tells_what_it_has_to_tell(stream: io.StringIO) -> None:
    """The first one ends before its turn does."""

    async def tell(event: str) -> None:
        structlog.get_logger("test").info(event)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(tell("first"))
    loop.close()
    asyncio.run(tell("second"))
    structlog.get_logger("test").warning("third")
    assert events(stream) == ["first", "second", "third"]


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise RuntimeError('crash')", "os.fork()"])
def test_nothing_is_lost_at_exit_nor_told_twice_by_a_fork(end: str) -> None:
    program = f"""
import asyncio, os, sys
import structlog
from gridpost.assembly.logs import log_to_stderr
log_to_stderr("component")
async def main():
    structlog.get_logger("test").info("last words")
    {end}
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert ended.stderr.count("last words") == 1


def test_a_line_of_the_logging_module_tells_its_facts(stream: io.StringIO) -> None:
    facts = {"refusal": "r-1", "rule": "LIMIT_EXCEEDED", "peer": "192.0.2.1:5671"}
    logging.getLogger("gridpost.amqp").info("refused", extra=facts)
    (line,) = written(stream)
    assert line | facts == line
    assert (line["event"], line["level"], line["component"]) == (
        "refused",
        "info",
        "component-under-test",
    )
