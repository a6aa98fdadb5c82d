"""Sockets and connections. Each transport runs what assembly hands it and decides nothing about it."""
