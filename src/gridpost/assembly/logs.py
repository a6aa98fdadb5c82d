"""How a running component logs: one JSON object per line on stderr, libraries included.

What one turn of the event loop tells leaves in one write. A warning or worse leaves at once, with what
was told before it; so does what other threads tell, and everything before a fork and at exit.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import os
import sys
from collections import deque
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _text
from threading import Lock
from time import time_ns
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

# Made once: `json.dumps` would make one for each value.
_ENCODER = json.JSONEncoder(default=repr)
_LEVELS = {"warn": "warning", "exception": "error"}


def log_to_stderr(component: str, level: int = logging.INFO) -> None:
    log_to(sys.stderr, component, level)


def log_to(stream: TextIO, component: str, level: int = logging.INFO) -> None:
    lines = Lines(stream)
    atexit.register(lines.flush)
    os.register_at_fork(before=lines.flush)

    def complete(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
        # One function for what structlog has four for: a busy endpoint writes a thousand lines a second.
        event.setdefault("component", component)
        event["level"] = _LEVELS.get(method, method)
        event["timestamp"] = _timestamp()
        if "exc_info" in event:
            return structlog.processors.format_exc_info(logger, method, event)
        return event

    filtering: Any = structlog.make_filtering_bound_logger(level)

    class Short(filtering):  # type: ignore[misc]
        """The same in fewer steps: lines of messages are a good part of what an endpoint does."""

        def _proxy_to_logger(self, method: str, event: str | None = None, **more: Any) -> Any:
            if self._processors[-1] is not _render:
                # Somebody listens, as tests do.
                return super()._proxy_to_logger(method, event, **more)
            told: EventDict = {**self._context, **more} if self._context else more
            told["event"] = event
            line = _render(self._logger, method, complete(self._logger, method, told))
            return getattr(self._logger, method)(line)

    structlog.configure(
        processors=[complete, _render],
        wrapper_class=Short,
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            # The logging module has what a line says beside its text in `extra`.
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), complete],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


class Lines:
    """The logger at the end of structlog's chain, and a stream for the logging module."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._waiting: deque[str] = deque()
        self._writing = Lock()
        self._due: asyncio.AbstractEventLoop | None = None
        """The loop at the end of whose turn everything is written."""

    def info(self, line: str) -> None:
        loop = asyncio._get_running_loop()
        if loop is None:
            self.warning(line)
            return
        if self._due is not loop:
            self._due = loop
            loop.call_soon(self._end_turn)
        self._waiting.append(line + "\n")

    msg = debug = info

    def warning(self, line: str) -> None:
        self.write(line + "\n")
        self.flush()

    warn = error = exception = critical = fatal = failure = err = warning

    def write(self, text: str) -> None:
        self._waiting.append(text)

    def flush(self) -> None:
        # Taken and written under one lock: lines of two threads stay whole and in their order.
        with self._writing:
            waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if waiting:
                self._stream.write("".join(waiting))
                self._stream.flush()

    def _end_turn(self) -> None:
        self._due = None
        self.flush()


def _timestamp() -> str:
    now = time_ns() // 1_000
    seconds, fraction = divmod(now, 1_000_000)
    return f"{_second(seconds)}.{fraction:06d}Z"


@lru_cache(maxsize=2)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _render(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    """As `json.dumps` writes it; nearly all values are texts."""
    fields = [
        f"{_text(name)}: {_text(value) if type(value) is str else _ENCODER.encode(value)}"
        for name, value in event.items()
    ]
    return "{" + ", ".join(fields) + "}"
