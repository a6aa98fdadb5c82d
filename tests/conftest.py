"""Plugins of the whole suite, and how hard hypothesis looks."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester", "support.broker_fixture", "support.conformance", "support.soak"]

# Shared machines are slow at times: a deadline per example would only fail innocent tests.
_SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", print_blob=True, **_SETTINGS)
# The same examples on every run: a build that fails fails again.
settings.register_profile("ci", derandomize=True, print_blob=True, **_SETTINGS)
settings.register_profile("soak", max_examples=2_000, print_blob=True, **_SETTINGS)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
