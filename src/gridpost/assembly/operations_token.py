"""The token of an operations listener: whoever can read it in the home of the component may change things.

A loopback address is open to every user of the machine; the home folder is not. A start makes a new token.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from gridpost.core.refusal import Refusal, Rule
from gridpost.services.operations.administrators import new_token

FILE = "operations.token"
Admit = Callable[[str], Awaitable[str]]


def write_token(home: Path) -> str:
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = new_token()
    fresh = home / f"{FILE}.{os.getpid()}"
    fresh.touch(mode=0o600)
    fresh.write_text(token + "\n", encoding="ascii")
    fresh.replace(home / FILE)
    return token


def read_token(home: Path) -> str:
    file = home / FILE
    try:
        return file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise Refusal(
            Rule.UNREACHABLE, f"{file} is not there: the service has not been started here"
        ) from None
    except OSError as error:
        raise Refusal(
            Rule.ACCESS_DENIED,
            f"{file} cannot be read: {error.strerror}",
            "run the command as the user of the service",
        ) from None


def bearer(home: Path) -> dict[str, str]:
    """What a command sends along."""
    return {"authorization": f"Bearer {read_token(home)}"}


async def nobody(authorization: str) -> str:
    raise Refusal(
        Rule.ACCESS_DENIED,
        "this needs the token of the service",
        f"run the command as the user of the service, who can read {FILE} in its home",
    )


def admitting(token: str, others: Admit) -> Admit:
    """Empty for the token of the home; otherwise the name that `others` know the token by."""

    async def admit(authorization: str) -> str:
        if hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            return ""
        return await others(authorization)

    return admit
