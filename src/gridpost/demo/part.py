"""A further part of the demonstration: what it needs, what it starts, what it shows.

A part whose engine is not on this machine is left out with the reason; one that fails ends the
demonstration with the component, its log and the line.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import httpx

from gridpost.assembly.network import Placed, Ports
from gridpost.assembly.network.write import OPERATOR
from gridpost.assembly.operations_token import FILE as TOKEN
from gridpost.assembly.operations_token import bearer
from gridpost.core.refusal import Refusal, Rule
from gridpost.demo.processes import ComponentProcess
from gridpost.services.operations.passwords import hash_password

Done = Callable[[str], None]
ANSWER_SECONDS = 90.0


class Part(Protocol):
    name: ClassVar[str]
    steps: ClassVar[tuple[str, ...]]

    @property
    def processes(self) -> tuple[ComponentProcess, ...]: ...

    async def show(self, done: Done) -> dict[str, Any]:
        """Starts the component and uses it; `done` is told of each step."""
        ...


def place(home: Path, command: str, code: str, names: tuple[str, ...], free: Ports) -> Placed:
    """The component's folder; ports that an earlier start has chosen are used again."""
    folder = home / code
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ports = kept_ports(folder / "ports.json", names, free)
    return Placed(command, code, folder / f"{command}.toml", MappingProxyType(ports))


def kept_ports(file: Path, names: tuple[str, ...], free: Ports) -> dict[str, int]:
    if file.exists():
        kept: dict[str, int] = json.loads(file.read_text(encoding="ascii"))
    else:
        kept = {}
    ports = {name: kept.get(name) or free() for name in names}
    file.write_text(json.dumps(ports), encoding="ascii")
    return ports


def console_of(placed: Placed, more: str = "") -> str:
    """Its console in the configuration; the password of an earlier start stays."""
    file = placed.folder / "console.password"
    if not file.exists():
        file.touch(mode=0o600)
        file.write_text(secrets.token_urlsafe(18) + "\n", encoding="ascii")
    password = hash_password(file.read_text(encoding="ascii").strip())
    return (
        f'[console]\nhost = "127.0.0.1"\nport = {placed.ports["console"]}\n{more}\n'
        f'[console.users.{OPERATOR}]\nrole = "administrator"\npassword = "{password}"\n'
    )


def process_of(home: Path, placed: Placed) -> ComponentProcess:
    return ComponentProcess(placed, home / "log" / f"{placed.code}.log")


async def look(placed: Placed, view: str) -> Any:
    return await _operations(placed, "GET", view, None)


async def ask(placed: Placed, action: str, **form: Any) -> Any:
    """The component's own administration, as its command line asks it."""
    return await _operations(placed, "POST", action, {"by": "demo", **form})


async def _operations(placed: Placed, method: str, path: str, body: object) -> Any:
    url = f"http://127.0.0.1:{placed.ports['operations']}/{path}"
    home = placed.folder / "data"
    headers = bearer(home) if (home / TOKEN).exists() else {}
    async with httpx.AsyncClient(
        timeout=ANSWER_SECONDS, trust_env=False, headers=headers
    ) as client:
        answer = await client.request(method, url, json=body)
    if not answer.is_success:
        raise Refusal(Rule.INTERNAL, f"{path} was answered with {answer.text[:500]}")
    return answer.json()


@asynccontextmanager
async def blaming(process: ComponentProcess, what: str) -> AsyncIterator[None]:
    """Whoever uses a component that does not do its part says where to look."""
    try:
        yield
    except (Refusal, TimeoutError, httpx.HTTPError) as error:
        told = error.message if isinstance(error, Refusal) else type(error).__name__
        raise process.failure(f"did not serve {what} ({told})") from error
