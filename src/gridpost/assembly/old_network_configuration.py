"""The section of an endpoint's configuration that puts it into a MADES 1.1 network."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gridpost.assembly.configuration import Period
from gridpost.assembly.directory_configuration import Code, Url
from gridpost.assembly.token_configuration import TokenPlace
from gridpost.core.identifiers import MessageTypePattern
from gridpost.services.endpoint.old_network.settings import OldSettings

Count = Annotated[int, Field(ge=1)]


class OldNetworkSection(BaseModel):
    """`[old_network]`: the home node in a network of MADES 1.1, and this endpoint's keys there."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    node: Code
    """Component ID of the home node."""
    urls: Annotated[tuple[Url, ...], Field(min_length=1, max_length=2)]
    """Primary URL of the home node, and the secondary one if there is one."""
    papers: Annotated[tuple[Path, ...], Field(min_length=1, max_length=4)]
    """Folders with keys and certificates, as 'gridpost node register --keys' writes them."""
    token: TokenPlace | None = None
    """A device with the SIGNING keys of those certificates beside which there is no key file."""
    proxy: str = ""
    compress: tuple[str, ...] = ()
    """Business-types whose documents are packed before they are signed."""
    minimum_versions: dict[str, Count] = Field(default_factory=dict)
    """The lowest MADES version that may carry a business-type."""
    poll: Period = timedelta(seconds=5)
    max_messages: Count = 100
    max_size: Annotated[int, Field(ge=1024)] = 16 * 1024 * 1024

    def beside(self, folder: Path) -> OldNetworkSection:
        return self.model_copy(update={"papers": tuple(folder / p for p in self.papers)})

    def settings(self, organization: str) -> OldSettings:
        return OldSettings(
            node=self.node,
            urls=self.urls,
            organization=organization,
            compressed=tuple(MessageTypePattern(p) for p in self.compress),
            minimum_versions={MessageTypePattern(p): n for p, n in self.minimum_versions.items()},
            poll=self.poll,
            max_messages=self.max_messages,
            max_bytes=self.max_size,
        )
