"""The section `[postgres]` of any component's configuration: where its database is, and its password."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from gridpost.assembly.configuration import Duration
from gridpost.core.refusal import Refusal, Rule

if TYPE_CHECKING:
    from gridpost.stores.postgres.settings import PostgresSettings


class PostgresSection(BaseModel):
    """Read when `store = "postgres"`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dsn: SecretStr
    """postgresql://user@host:port/database, or words of libpq. Without a password in files."""
    password: SecretStr | None = None
    """For the environment."""
    password_file: Path | None = None
    """A file that only this service reads; its first line is the password."""
    schema_: Annotated[str, Field(alias="schema")] = "gridpost"
    connect_timeout: Duration = timedelta(seconds=5)
    lock_timeout: Duration = timedelta(seconds=10)
    readers: Annotated[int, Field(ge=1)] = 2

    @field_validator("connect_timeout", "lock_timeout")
    @classmethod
    def _positive(cls, value: timedelta) -> timedelta:
        if value <= timedelta(0):
            raise ValueError("must be longer than nothing")
        return value

    @model_validator(mode="after")
    def _readable(self) -> PostgresSection:
        if self.password is not None and self.password_file is not None:
            raise ValueError("give password or password_file, not both")
        try:
            self._with(None)
        except Refusal as refusal:
            raise ValueError(f"{refusal.message}: {refusal.details}") from None
        return self

    def beside(self, folder: Path) -> PostgresSection:
        """A relative password file counts from the folder of the configuration."""
        file = self.password_file
        return self.model_copy(update={"password_file": file and folder / file})

    def settings(self) -> PostgresSettings:
        if self.password is not None:
            return self._with(self.password.get_secret_value())
        file = self.password_file
        if file is None:
            return self._with(None)
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Refusal(Rule.USAGE, f"{file} cannot be read: {type(error).__name__}") from None
        if not lines or not lines[0]:
            raise Refusal(Rule.USAGE, f"{file} holds no password in its first line")
        return self._with(lines[0])

    def _with(self, password: str | None) -> PostgresSettings:
        try:
            # The driver is there with gridpost[postgres] only.
            from gridpost.stores.postgres.settings import PostgresSettings
        except ImportError:
            raise Refusal(
                Rule.USAGE, "the driver of PostgreSQL is missing", "install gridpost[postgres]"
            ) from None
        return PostgresSettings(
            self.dsn.get_secret_value(),
            password,
            schema=self.schema_,
            connect_timeout=self.connect_timeout,
            lock_timeout=self.lock_timeout,
            readers=self.readers,
        )
