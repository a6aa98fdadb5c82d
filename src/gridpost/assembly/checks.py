"""The checks of documents that a configuration asks for."""

from __future__ import annotations

from collections.abc import Sequence

from gridpost.assembly.endpoint_channels_configuration import CheckSection
from gridpost.core.checks import DocumentCheck
from gridpost.core.identifiers import MessageTypePattern
from gridpost.services.endpoint.checking import CheckRule
from gridpost.transports.check_command import CommandCheck
from gridpost.transports.icap import IcapCheck


def check_rules(sections: Sequence[CheckSection]) -> list[CheckRule]:
    return [
        CheckRule(
            section.name,
            _check(section),
            frozenset(section.before),
            tuple(MessageTypePattern(p) for p in section.message_types),
            section.timeout.total_seconds(),
            section.at_once,
            section.when_down,
        )
        for section in sections
    ]


def _check(section: CheckSection) -> DocumentCheck:
    if section.icap is not None:
        return IcapCheck(section.icap, preview=section.preview, ca=section.ca)
    return CommandCheck(section.command)
