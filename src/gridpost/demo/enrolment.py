"""The real registration of 503 cl. 7.6: invitation, request, approval, certificates, for each component."""

from __future__ import annotations

import asyncio
import json
import secrets
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from gridpost.assembly.administration_client import AdministrationClient
from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.enrolling import register_broker, register_endpoint
from gridpost.assembly.network import NetworkFiles, Placed
from gridpost.core.refusal import Refusal, Rule

DECISION_SECONDS = 90.0
REGISTER = MappingProxyType({"broker": register_broker, "endpoint": register_endpoint})


async def enrol_all(files: NetworkFiles, enrolled: Callable[[str], None]) -> None:
    """Every component that is not yet registered, side by side."""
    section = read_directory_configuration(files.directory.configuration).administration
    client = AdministrationClient(section, files.token.read_text(encoding="ascii").strip())

    async def one(placed: Placed) -> None:
        mark = placed.folder / ".registered"
        if not mark.exists():
            await asyncio.to_thread(enrol, client, placed)
            mark.touch()
        enrolled(placed.code)

    async with asyncio.TaskGroup() as group:
        for placed in files.components[1:]:
            group.create_task(one(placed))


def enrol(client: AdministrationClient, placed: Placed) -> None:
    """One component, from its invitation to its certificates. Blocks."""
    password = secrets.token_urlsafe(18)
    invitation = _ask(client, "/invitations", {"code": placed.code, "password": password})
    bundle = placed.folder / "installation.bundle"
    _write_secret(bundle, b64decode(invitation["bundle"]))
    register = REGISTER[placed.command]
    try:
        first = register(placed.configuration, bundle, password, 0)
        if first["state"] == "SUBMITTED":
            _ask(client, f"/registrations/{first['registration']}/approve", None)
        result = register(placed.configuration, bundle, password, DECISION_SECONDS)
    finally:
        bundle.unlink()
    if result["state"] != "INSTALLED":
        raise Refusal(
            Rule.INTERNAL, f"{placed.code} was not registered: {result['state']} {result['reason']}"
        )


def _ask(client: AdministrationClient, path: str, body: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(client.request("POST", path, body))
    return answer


def _write_secret(file: Path, data: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(data)
