"""Energy Identification Codes: sixteen characters, the last of which checks the others."""

from __future__ import annotations

import re

from gridpost.core.identifiers import clip
from gridpost.core.refusal import Refusal, Rule

_FORM = re.compile(r"[0-9]{2}[A-Z][A-Z0-9-]{12}[A-Z0-9]", re.ASCII)
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-"
_VALUE = {character: value for value, character in enumerate(_ALPHABET)}


def check_character(stem: str) -> str:
    """Of the first fifteen characters: weights 16 down to 2, modulo 37."""
    total = sum(
        _VALUE[character] * weight for character, weight in zip(stem, range(16, 1, -1), strict=True)
    )
    return _ALPHABET[36 - (total - 1) % 37]


def eic(text: str) -> str:
    """A code that may enter reference data."""
    if not _FORM.fullmatch(text):
        raise Refusal(
            Rule.BAD_EIC,
            f"'{clip(text)}' is not an EIC code: it has 16 characters, "
            "2 digits, a letter, 12 letters, digits or '-', and a check character",
        )
    wanted = check_character(text[:15])
    if wanted == "-" or text[15] != wanted:
        raise Refusal(
            Rule.BAD_EIC,
            f"the check character of the EIC code '{text}' is wrong: it should be '{wanted}'",
        )
    return text
