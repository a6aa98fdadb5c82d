"""Benches: each module of this package is one, named like it, with `measure() -> Measurement`.

Absolute figures depend on the machine; a bench therefore measures a yardstick in the same run and
reports ratios, which can be compared between machines. Nothing here asserts a speed.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a bench found: figures in the unit their name says, and ratios to a yardstick."""

    figures: Mapping[str, float]
    ratios: Mapping[str, float]
    tables: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """By title: rows of columns."""


def available() -> list[str]:
    """The benches of this installation, by name."""
    return sorted(module.name for module in iter_modules(__path__) if module.name[0] != "_")


def run(name: str) -> dict[str, Any]:
    """Runs one bench. The keys of the result are a contract with scripts."""
    measurement: Measurement = import_module(f"{__name__}.{name}").measure()
    return {
        "name": name,
        "machine": machine(),
        "figures": dict(measurement.figures),
        "ratios": dict(measurement.ratios),
        **({"tables": measurement.tables} if measurement.tables else {}),
    }


def machine() -> dict[str, str | int]:
    """What a reader needs to judge absolute figures."""
    # The library's own OpenSSL does the work, not the one that Python's ssl module is linked with.
    from cryptography.hazmat.backends.openssl import backend

    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "openssl": backend.openssl_version_text().split()[1],
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
