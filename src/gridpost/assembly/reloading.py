"""What a reload of the configuration changes: told to the journal key by key, and what it cannot change.

Secrets are told as changed and not as what they are; so are names and passwords inside an address.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import structlog
from pydantic import BaseModel

log = structlog.get_logger(__name__)

_SECRET = ("keys.", "console.users")
_LOGIN = re.compile(r"//[^@/]*@")


def changed(before: BaseModel, after: BaseModel) -> dict[str, tuple[Any, Any]]:
    """The keys that differ, as the file names them, with both values."""
    old, new = dict(_keys(before)), dict(_keys(after))
    return {
        key: (old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    }


def told(before: BaseModel, after: BaseModel) -> tuple[str, str]:
    """For the journal (503 cl. 10): what it was, and what it is."""
    found = changed(before, after)
    return (
        _text({key: old for key, (old, _) in found.items()}),
        _text({key: new for key, (_, new) in found.items()}),
    )


def say_restart_needed(before: BaseModel, after: BaseModel, keys: Iterable[str]) -> list[str]:
    """Warn of changes that count only after a restart; which ones they are."""
    prefixes = tuple(keys)
    found = [
        key
        for key in changed(before, after)
        if any(key == prefix or key.startswith(f"{prefix}.") for prefix in prefixes)
    ]
    if found:
        log.warning("restart needed: changed keys that count only after a restart", keys=found)
    return found


def _keys(section: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _keys(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(values: dict[str, Any]) -> str:
    shown = {key: _shown(key, value) for key, value in values.items()}
    return _LOGIN.sub("//***@", json.dumps(shown, default=str))


def _shown(key: str, value: Any) -> Any:
    """Users have hashes of passwords, which are nobody's business either."""
    return "***" if value is not None and key.startswith(_SECRET) else value
