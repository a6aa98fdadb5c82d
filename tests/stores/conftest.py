"""Failing assertions of the shared contracts are explained like those of tests."""

import pytest

pytest.register_assert_rewrite(
    "stores.contract",
    "stores.contract_box",
    "stores.contract_journal",
    "stores.contract_outgoing",
    "stores.contract_retention",
    "stores.contract_transactions",
    "support.boxed",
)
