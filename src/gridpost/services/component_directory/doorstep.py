"""What happens at a directory before there is a request, in the forms of its interface (503 cl. 7.5, 10)."""

from __future__ import annotations

from collections.abc import Sequence

from gridpost.core.directory_ports import RegistryStore, RegistryUnit
from gridpost.core.identifiers import clip
from gridpost.core.journal import RefusalRow
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.component_directory.metrics import DirectoryMetrics
from gridpost.services.operations import doorstep
from gridpost.wire.directory import MEDIA_TYPE, encode_error


class Doorstep(doorstep.Doorstep):
    """`refused` and `malformed` never wait; `run` writes."""

    def __init__(
        self,
        store: RegistryStore,
        clock: Clock,
        metrics: DirectoryMetrics,
        most: int = 100,
        round_seconds: float = doorstep.ROUND,
    ) -> None:
        async def keep(rows: Sequence[RefusalRow]) -> None:
            def write(unit: RegistryUnit) -> None:
                for row in rows:
                    unit.journal.append(row)

            await store.run(write)

        super().__init__(keep, clock, metrics.refused, most, round_seconds)

    def malformed(self, reason: str) -> tuple[str, bytes]:
        """What was no HTTP request at all gets an error body as well (503 cl. 7.5)."""
        refusal = Refusal(Rule.MALFORMED_XML, f"not an HTTP request: {clip(reason)}")
        self.refused(refusal, "")
        return MEDIA_TYPE, encode_error(refusal)
