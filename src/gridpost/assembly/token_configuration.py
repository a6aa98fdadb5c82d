"""Where a PKCS#11 token is, in a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr

from gridpost.stores.keys.pkcs11 import TokenAccess


class TokenPlace(BaseModel):
    """A PKCS#11 token that holds private keys; they never leave it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    module: Path
    """The library of the token's vendor."""
    label: Annotated[str, Field(min_length=1)]
    pin: SecretStr
    """Better given by the environment than in the file."""

    def access(self) -> TokenAccess:
        return TokenAccess(str(self.module), self.label, self.pin.get_secret_value())
