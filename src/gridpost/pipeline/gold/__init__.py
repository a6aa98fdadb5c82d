"""Gold: key figures of delivery, reconciliation, evidence. Each row names the build that made it."""
