"""The client by the name that documents use: `from gridpost.capacity.client import CapacityClient`."""

from gridpost.capacity.asynchronous import AsyncCapacityClient
from gridpost.capacity.blocking import CapacityClient

__all__ = ["AsyncCapacityClient", "CapacityClient"]
