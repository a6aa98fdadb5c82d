"""How configuration files are read: TOML, overridden by the environment, mistakes named by their place."""

from __future__ import annotations

import re
import tomllib
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gridpost.core.refusal import Refusal, Rule

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def _duration(value: object) -> object:
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a duration like 30s, 5m, 24h or 7d")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])


def duration(text: str) -> timedelta:
    """A duration as configuration files write it."""
    try:
        found = _duration(text)
    except ValueError as error:
        raise Refusal(Rule.USAGE, f"'{text}': {error}") from None
    assert isinstance(found, timedelta)
    return found


def _positive(duration: timedelta) -> timedelta:
    if duration <= timedelta(0):
        raise ValueError("must be longer than nothing")
    return duration


Duration = Annotated[timedelta, BeforeValidator(_duration)]
Period = Annotated[Duration, AfterValidator(_positive)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Configuration(BaseSettings):
    """Base of all configurations. Unknown keys are mistakes, not extensions."""

    model_config = SettingsConfigDict(extra="forbid", env_nested_delimiter="__", frozen=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The file comes in as arguments; the environment overrides it.
        return env_settings, init_settings


C = TypeVar("C", bound=Configuration)


def read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(
            Rule.USAGE, f"{file} cannot be read: {error.strerror or type(error).__name__}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Refusal(Rule.USAGE, f"{file} is not TOML: {error}") from None


def read_configuration(file: Path, model: type[C]) -> C:
    """The configuration in a file, or a refusal that names every mistake with its place."""
    try:
        return model(**read_toml(file))
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'file'}: "
            f"{problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors(include_url=False, include_input=False)
        ]
        raise Refusal(Rule.USAGE, f"{file}: {problems[0]}", "; ".join(problems[1:])) from None
