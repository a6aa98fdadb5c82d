"""Bytes to core values and back: no sockets, no keys, no clock. Encode and decode stand side by side."""
