"""The settings page of any console: parameters that count without a restart, kept in the file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

from gridpost.assembly.configuration_file import ConfigurationFile, Value, set_value
from gridpost.console.configuring import Setting
from gridpost.core.refusal import Refusal, Rule

C = TypeVar("C")
Groups = tuple[tuple[str, tuple[Setting, ...]], ...]
"""Headings, each with its settings."""
DURATION = "write a duration like 30s, 5m, 24h or 7d"
LINES = "one on each line"
CONTACT = (
    "Contact",
    (
        Setting("contact.organization", "Organization", "published by the directory"),
        Setting("contact.person", "Person", "whom to call"),
        Setting("contact.email", "E-mail", "of that person or team"),
        Setting("contact.phone", "Phone", "with the country code"),
    ),
)


class SettingsFile(Generic[C]):
    """console.configuring.SettingsDesk."""

    def __init__(
        self,
        settings: Groups,
        file: ConfigurationFile[C],
        current: Callable[[], C],
        apply: Callable[[C, str], Awaitable[None]],
    ) -> None:
        self.settings = settings
        self._file = file
        self._current = current
        self._apply = apply

    def current(self) -> tuple[Mapping[str, str], str]:
        configuration = self._current()
        names = [s.name for _, group in self.settings for s in group]
        return {n: _text(_value(configuration, n)) for n in names}, self._file.mark()

    async def save(self, values: Mapping[str, str], mark: str, by: str) -> Sequence[str]:
        before, _ = self.current()
        configuration = self._current()
        labels = {s.name: s.label for _, group in self.settings for s in group}
        changed = {
            name: _typed(text, _value(configuration, name), labels[name])
            for name, text in values.items()
            if text.split() != before[name].split()
        }

        def edit(text: str) -> str:
            for name, value in changed.items():
                text = set_value(text, tuple(name.split(".")), value)
            return text

        if changed:
            await self._apply(self._file.change(edit, mark), by)
        return [labels[name].lower() for name in changed]


def _value(configuration: object, name: str) -> Any:
    value: Any = configuration
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _text(value: Any) -> str:
    if isinstance(value, timedelta):
        return duration_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "\n".join(value) if isinstance(value, tuple) else str(value)


def _typed(text: str, like: Any, label: str) -> Value:
    if isinstance(like, bool):
        return text == "true"
    if isinstance(like, tuple):
        return text.split()
    if isinstance(like, int):
        if not text.isdigit():
            raise Refusal(Rule.USAGE, f"{label}: write a whole number")
        return int(text)
    return text


def duration_text(value: timedelta) -> str:
    """As people write it in the file: the largest unit that says it exactly."""
    microseconds = value // timedelta(microseconds=1)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if microseconds and microseconds % (size * 1_000_000) == 0:
            return f"{microseconds // (size * 1_000_000)}{unit}"
    return f"{microseconds // 1000}ms" if microseconds else "0s"
