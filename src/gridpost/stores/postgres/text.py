"""Which texts a database can hold: PostgreSQL takes neither NUL nor half a character."""

from __future__ import annotations


def storable(text: str) -> bool:
    """False: nothing with this text can be in the database, so nothing is found by it."""
    if "\0" in text:
        return False
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def told(text: str) -> str:
    """A text for people, as the database can hold it."""
    if storable(text):
        return text
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
