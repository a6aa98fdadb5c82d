"""Bytes to values of the core and back; no sockets, no private keys."""
