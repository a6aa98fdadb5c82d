"""How a running component logs: one JSON object per line on stderr, libraries included."""

from __future__ import annotations

import json
import logging
import sys
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

# Made once: `json.dumps` would make one for each line, and a busy endpoint writes a thousand a second.
_ENCODER = json.JSONEncoder(default=repr)


def log_to_stderr(component: str, level: int = logging.INFO) -> None:
    log_to(sys.stderr, component, level)


def log_to(stream: TextIO, component: str, level: int = logging.INFO) -> None:
    def name_component(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("component", component)
        return event

    shared: list[Processor] = [
        name_component,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, _render],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _render],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)


def _render(_logger: WrappedLogger, _method: str, event: EventDict) -> str:
    return _ENCODER.encode(event)
