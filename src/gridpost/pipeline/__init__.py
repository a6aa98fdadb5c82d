"""From every component's journal to tables, key figures and proofs."""
