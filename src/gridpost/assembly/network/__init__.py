"""A whole network as files: who takes part, and what each of them is configured to do."""

from gridpost.assembly.network.plan import NetworkPlan, Party, Ports, ports_from
from gridpost.assembly.network.write import NetworkFiles, Placed, read_network, write_network

__all__ = [
    "NetworkFiles",
    "NetworkPlan",
    "Party",
    "Placed",
    "Ports",
    "ports_from",
    "read_network",
    "write_network",
]
