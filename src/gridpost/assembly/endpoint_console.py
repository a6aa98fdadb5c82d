"""The console of an endpoint, joined: what it shows of the running parts, and how it changes the file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gridpost.assembly.configuration_file import ConfigurationFile, replace_tables
from gridpost.assembly.console import whose
from gridpost.assembly.endpoint_configuration import (
    EndpointConfiguration,
    PathSection,
    read_endpoint_configuration,
)
from gridpost.assembly.endpoint_parts import EndpointCore
from gridpost.assembly.settings_file import CONTACT, DURATION, LINES, Groups, SettingsFile
from gridpost.console.configuring import PathForm, Setting, Verdict
from gridpost.console.endpoint import PLACES, EndpointConsole, Freshness
from gridpost.console.frame import Frame, moment_of
from gridpost.core.certificate import Certificate
from gridpost.core.component import Component, inconsistencies, system_inconsistencies
from gridpost.core.ports import Clock, Store
from gridpost.core.refusal import Refusal
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.endpoint.lines import LineView

Apply = Callable[[EndpointConfiguration, str], Awaitable[None]]
Current = Callable[[], EndpointConfiguration]

SETTINGS: Groups = (
    CONTACT,
    (
        "Delivery",
        (
            Setting("expiration.default", "Longest delivery", DURATION),
            Setting("max_content", "Largest document", "in bytes"),
            Setting("strict_patterns", "Strict message types", "letters and digits only", "switch"),
            Setting("ordered", "Message types in order", f"patterns, {LINES}", "list"),
        ),
    ),
    (
        "Retention after the final state",
        (
            Setting("retention.sent_content", "Sent documents", DURATION),
            Setting("retention.sent_metadata", "Sent messages", DURATION),
            Setting("retention.received_content", "Received documents", DURATION),
            Setting("retention.received_metadata", "Received messages", DURATION),
            Setting("retention.received_ids", "Identifiers, to stop duplicates", DURATION),
        ),
    ),
    (
        "Journal and certificates",
        (
            Setting("journal.retention", "Journal", DURATION),
            Setting("journal.content", "Journalled documents", f"patterns, {LINES}", "list"),
            Setting("certificates.expiry_warning", "Warning before expiry", DURATION),
        ),
    ),
)


def endpoint_console(
    core: EndpointCore,
    client: DirectoryClient,
    store: Store,
    clock: Clock,
    current: Current,
    file: Path | None,
    certificates: Callable[[], Sequence[Certificate]],
) -> tuple[Frame, EndpointConsole]:
    section = current().console
    assert section is not None
    frame = Frame(whose(current().code, "endpoint"), section.settings(), clock, store, PLACES)
    kept = ConfigurationFile(file, read_endpoint_configuration)
    console = EndpointConsole(
        frame,
        core.context,
        core.submission,
        core.enquiry,
        core.explaining,
        core.evidence,
        _Facts(core, client, certificates),
        _PathsDesk(kept, current, core.reconfigure, client, clock),
        SettingsFile(SETTINGS, kept, current, core.reconfigure),
        core.operating,
    )
    return frame, console


class _Facts:
    """console.endpoint.Facts."""

    def __init__(
        self,
        core: EndpointCore,
        client: DirectoryClient,
        certificates: Callable[[], Sequence[Certificate]],
    ) -> None:
        self._core = core
        self._client = client
        self._certificates = certificates

    def lines(self) -> Sequence[LineView]:
        return self._core.lines.views()

    def certificates(self) -> Sequence[Certificate]:
        return self._certificates()

    def freshness(self) -> Freshness:
        state, pushed = self._client.synchroniser.state, self._client.configuration.state
        return Freshness(
            state.succeeded_at,
            state.succeeded_with or "",
            state.failed_at,
            state.reason,
            pushed.pending,
            pushed.reason,
            state.warnings,
        )


class _PathsDesk:
    """console.configuring.PathsDesk."""

    def __init__(
        self,
        file: ConfigurationFile[EndpointConfiguration],
        current: Current,
        apply: Apply,
        client: DirectoryClient,
        clock: Clock,
    ) -> None:
        self._file = file
        self._current = current
        self._apply = apply
        self._client = client
        self._clock = clock

    def current(self) -> tuple[Sequence[PathForm], str]:
        forms = [
            PathForm(
                section.message_type,
                section.path,
                ", ".join(section.senders),
                "" if section == _without_start(section) else _moment(section.valid_from),
                "" if section.valid_until is None else _moment(section.valid_until),
            )
            for section in self._current().paths
        ]
        return forms, self._file.mark()

    def check(self, paths: Sequence[PathForm]) -> Verdict:
        """503 cl. 7.3.1 and 7.3.2, as they are applied when the paths are saved."""
        problems: list[str] = []
        sections: list[PathSection] = []
        for number, form in enumerate(paths, start=1):
            try:
                sections.append(PathSection(**_row(form)))
            except Refusal as refusal:
                problems.append(f"path {number}: {refusal.message}")
            except ValidationError as error:
                told = [e["msg"].removeprefix("Value error, ") for e in error.errors()]
                problems += [f"path {number}: {message}" for message in told]
        entry = self._current().entry()
        try:
            entry = replace(entry, paths=tuple(section.path_of() for section in sections))
        except Refusal as refusal:
            return Verdict((*problems, refusal.message))
        problems += inconsistencies(entry)
        others: dict[str, Component] = {
            c.code: c for c in self._client.directory().components(self._clock.now())
        }
        return Verdict(
            tuple(problems), tuple(system_inconsistencies(entry, others)) if others else ()
        )

    async def save(self, paths: Sequence[PathForm], mark: str, by: str) -> None:
        rows = [_row(form) for form in paths]
        configuration = self._file.change(lambda text: replace_tables(text, "paths", rows), mark)
        await self._apply(configuration, by)


def _row(form: PathForm) -> dict[str, Any]:
    row: dict[str, Any] = {"message_type": form.message_type or "*", "path": form.path}
    senders = form.senders.replace(",", " ").split()
    if senders != ["*"]:
        row["senders"] = senders
    for name in ("valid_from", "valid_until"):
        at = moment_of(getattr(form, name), name.replace("_", " "))
        if at is not None:
            row[name] = _moment(at)
    return row


def _without_start(section: PathSection) -> PathSection:
    return PathSection(**section.model_dump(exclude={"valid_from"}))


def _moment(at: Any) -> str:
    return str(at.strftime("%Y-%m-%dT%H:%M:%SZ"))
