"""Plugins of the whole suite, and how hard hypothesis looks."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Failing assertions of shared contracts and helpers are explained like those of tests. This must
# happen before the first of them is imported, from whichever folder.
pytest.register_assert_rewrite(
    "stores.contract",
    "stores.contract_box",
    "stores.contract_journal",
    "stores.contract_outgoing",
    "stores.contract_retention",
    "stores.contract_transactions",
    "support.boxed",
)

pytest_plugins = [
    "pytester",
    "support.broker_fixture",
    "support.conformance",
    "support.postgres",
    "support.rabbitmq",
    "support.soak",
]

# Shared machines are slow at times: a deadline per example would only fail innocent tests.
_SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("dev", print_blob=True, **_SETTINGS)
# The same examples on every run: a build that fails fails again.
settings.register_profile("ci", derandomize=True, print_blob=True, **_SETTINGS)
settings.register_profile("soak", max_examples=2_000, print_blob=True, **_SETTINGS)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
