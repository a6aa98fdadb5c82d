"""How a program changes a configuration file that people write: only the asked lines, comments kept.

What comes out is read again and compared with what was meant; where a file is written in a way that
cannot be changed like this, it is left alone and its owner is told.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from gridpost.core.refusal import Refusal, Rule

C = TypeVar("C")
Name = tuple[str, ...]
Value = str | int | bool | Sequence[str]

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A header or a key with its value: lines `start` to `end` (exclusive)."""

    start: int
    end: int
    table: Name
    key: Name
    """Empty: a header."""
    array: bool = False


def set_value(text: str, name: Name, value: Value | None) -> str:
    """The text with another value at `name`; None takes the key away."""
    lines, statements = _read(text)
    *table, key = name
    written = [] if value is None else [f"{_key(key)} = {_literal(value)}"]
    found = [s for s in statements if s.key and (*s.table, *s.key) == name]
    if found:
        lines[found[0].start : found[0].end] = written
    elif written:
        inside = [s for s in statements if s.table == tuple(table)]
        if inside:
            lines[inside[-1].end : inside[-1].end] = written
        elif not table:
            lines[0:0] = written
        else:
            lines += ["", f"[{'.'.join(map(_key, table))}]", *written]
    return _proven(text, lines, lambda data: _put(data, name, value))


def remove_table(text: str, name: Name) -> str:
    lines, statements = _read(text)
    _cut(lines, statements, lambda s: s.table[: len(name)] == name)
    return _proven(text, lines, lambda data: _put(data, name, None))


def replace_tables(text: str, name: str, rows: Sequence[Mapping[str, Value]]) -> str:
    """The array of tables `name` with other rows, where the first of them stood."""
    lines, statements = _read(text)
    at = _cut(
        lines, statements, lambda s: s.table[:1] == (name,) or (not s.table and s.key == (name,))
    )
    written: list[str] = []
    for row in rows:
        written += [
            f"[[{_key(name)}]]",
            *(f"{_key(k)} = {_literal(v)}" for k, v in row.items()),
            "",
        ]
    if at is None and lines and lines[-1].strip():
        written.insert(0, "")
    place = len(lines) if at is None else at
    lines[place:place] = written
    meant = [
        {k: v if isinstance(v, str | int) else list(v) for k, v in row.items()} for row in rows
    ]
    return _proven(text, lines, lambda data: _put(data, (name,), meant or None))


class ConfigurationFile(Generic[C]):
    """A file that `read` understands; `mark` tells whether somebody else changed it."""

    def __init__(self, file: Path | None, read: Callable[[Path], C]) -> None:
        self._file = file
        self._read = read

    def mark(self) -> str:
        return "" if self._file is None else _mark(self._text(self._file))

    def change(self, edit: Callable[[str], str], mark: str | None = None) -> C:
        """Write the edited text, if it is a good configuration; give what it says.

        With a `mark` a file that has changed since is left alone.
        """
        file = self._file
        if file is None:
            raise Refusal(Rule.USAGE, "this component runs without a configuration file")
        text = self._text(file)
        if mark is not None and _mark(text) != mark:
            raise Refusal(
                Rule.USAGE,
                "the configuration file was changed in the meantime",
                "load the page again and repeat the change",
            )
        edited = edit(text)
        try:
            handle, name = tempfile.mkstemp(".toml", ".gridpost-", file.resolve().parent)
        except OSError as error:
            raise _unwritable(file, error) from None
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.write(edited)
                out.flush()
                os.fsync(out.fileno())
            try:
                configuration = self._read(Path(name))
            except Refusal as refusal:
                message = refusal.message.replace(f"{name}: ", "")
                raise Refusal(refusal.rule, message, refusal.details) from None
            status = file.stat()
            os.chmod(name, status.st_mode & 0o7777)
            with suppress(PermissionError):
                os.chown(name, status.st_uid, status.st_gid)
            os.replace(name, file.resolve())
        except OSError as error:
            raise _unwritable(file, error) from None
        finally:
            with suppress(FileNotFoundError):
                os.unlink(name)
        return configuration

    def _text(self, file: Path) -> str:
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise Refusal(Rule.USAGE, f"{file} cannot be read: {error}") from None


def _unwritable(file: Path, error: OSError) -> Refusal:
    return Refusal(
        Rule.USAGE,
        f"the configuration file cannot be written: {error.strerror}",
        f"let the user of this service write {file.name} and its folder, or edit it by hand",
    )


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(text: str) -> tuple[list[str], list[_Statement]]:
    # TOML knows two ends of a line; what else Python calls one may stand in a text.
    lines = text.replace("\r\n", "\n").split("\n")
    found: list[_Statement] = []
    table: Name = ()
    at = 0
    while at < len(lines):
        stripped = lines[at].strip()
        if not stripped or stripped.startswith("#"):
            at += 1
            continue
        end = at + 1
        while True:
            try:
                parsed = tomllib.loads("\n".join(lines[at:end]))
                break
            except tomllib.TOMLDecodeError:
                end += 1
                if end > len(lines):
                    raise Refusal(Rule.USAGE, f"line {at + 1} is not TOML") from None
        if stripped.startswith("["):
            table, array = _way(parsed)
            found.append(_Statement(at, end, table, (), array))
        else:
            found.append(_Statement(at, end, table, _key_of(parsed)))
        at = end
    return lines, found


def _way(parsed: dict[str, Any]) -> tuple[Name, bool]:
    """Where a header leads, and whether it is one of an array."""
    way: list[str] = []
    value: Any = parsed
    while isinstance(value, dict) and value:
        [(key, value)] = value.items()
        way.append(key)
    return tuple(way), isinstance(value, list)


def _key_of(parsed: dict[str, Any]) -> Name:
    """A dotted key is not taken apart from an inline table: only the first name is sure."""
    [(key, _)] = parsed.items()
    return (key,)


def _cut(
    lines: list[str], statements: list[_Statement], goes: Callable[[_Statement], bool]
) -> int | None:
    """Take statements out; what people wrote between them stays. Where the first stood."""
    doomed = [s for s in statements if goes(s)]
    for statement in reversed(doomed):
        del lines[statement.start : statement.end]
        # One empty line between two statements is enough.
        while (
            0 < statement.start < len(lines)
            and not lines[statement.start].strip()
            and not lines[statement.start - 1].strip()
        ):
            del lines[statement.start]
    return doomed[0].start if doomed else None


def _proven(before: str, lines: list[str], meant: Callable[[dict[str, Any]], None]) -> str:
    text = "\n".join(lines).rstrip("\n") + "\n"
    wanted = tomllib.loads(before)
    meant(wanted)
    try:
        got: object = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        got = None
    if _filled(got) != _filled(wanted):
        raise Refusal(
            Rule.USAGE,
            "the configuration file is written in a way that cannot be changed from here",
            "change it by hand",
        )
    return text


def _filled(value: object) -> object:
    """Without empty tables: one may go with its last key, or stay."""
    if not isinstance(value, dict):
        return value
    kept = {key: _filled(one) for key, one in value.items()}
    return {key: one for key, one in kept.items() if one != {}}


def _put(data: dict[str, Any], name: Name, value: Any) -> None:
    *tables, key = name
    for table in tables:
        data = data.setdefault(table, {})
    if value is None:
        data.pop(key, None)
    else:
        data[key] = list(value) if _listed(value) else value


def _listed(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _literal(key)


def _literal(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
    return f"[{', '.join(_literal(one) for one in value)}]"
