"""Protocols on sockets. They run what assembly hands them and know no service."""
