"""Gridpost: the open post office of the electricity market."""

__version__ = "0.1.0"
