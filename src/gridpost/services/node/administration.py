"""What an administrator sees of a node and does with it, as JSON (MADES 1.1 cl. 3.15.1)."""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from gridpost.core.certificate import Certificate, CertificateKind
from gridpost.core.component import Contact
from gridpost.core.journal import AdministrationRow
from gridpost.core.node import NodeComponent, RemoteNode
from gridpost.core.node_ports import NodeStore
from gridpost.core.ports import Clock
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.node.archive import Archive
from gridpost.services.node.directory import NodeDirectory
from gridpost.services.node.synchroniser import NodeSynchroniser
from gridpost.services.node.upkeep import NodeUpkeep

Certify = Callable[[str, CertificateKind, bytes], Awaitable[Certificate]]
"""The INTEGRATED CA: a certificate for a component, a kind and a public key (SPKI)."""
Action = Callable[[dict[str, Any]], Awaitable[Any]]

OPERATOR = "operator"
KINDS = (CertificateKind.AUTHENTICATION, CertificateKind.SIGNING, CertificateKind.ENCRYPTION)
_PAGE = 1000


class NodeAdministration:
    def __init__(
        self,
        store: NodeStore,
        clock: Clock,
        directory: NodeDirectory,
        synchroniser: NodeSynchroniser,
        upkeep: NodeUpkeep,
        archive: Archive,
        certify: Certify,
        read_external: Callable[[bytes, CertificateKind, datetime], Certificate],
    ) -> None:
        self._store = store
        self._clock = clock
        self._directory = directory
        self._synchroniser = synchroniser
        self._upkeep = upkeep
        self._archive = archive
        self._certify = certify
        self._read_external = read_external

    def views(self) -> Mapping[str, Callable[[], Any]]:
        return {"components": self.components}

    def actions(self) -> Mapping[str, Action]:
        return {
            "register": self._register,
            "update": self._update,
            "renew": self._renew,
            "revoke": self._revoke,
            "remove": self._remove,
            "nodes": self._nodes,
            "import-nodes": self._import_nodes,
            "synchronise": self._synchronise,
            "messages": self._messages,
            "expire": self._expire,
            "purge": self._purge,
            "archive": self._archive_now,
        }

    async def health(self) -> dict[str, Any]:
        counts = await self._store.read(lambda unit: unit.counts())
        nodes = await self._synchroniser.nodes()
        return {
            "ok": True,
            "code": self._directory.settings.code,
            "mversion": self._directory.settings.mversion,
            "dversion": self._directory.dversion,
            "components": len(self._directory.components),
            "messages": {state.value: count for state, count in counts.items()},
            "nodes": {node.code: node.problem or "ok" for node in nodes},
        }

    def components(self) -> list[dict[str, Any]]:
        return [_component(c) for c in self._directory.components.values()]

    async def _register(self, form: dict[str, Any]) -> dict[str, Any]:
        return await self.register(_actor(form), form)

    async def register(self, actor: str, form: dict[str, Any]) -> dict[str, Any]:
        code = _text(form, "code")
        certificates = await self._certificates(code, form)
        mversion = form.get("mversion")
        component = await self._directory.register(
            actor, code, _contact(form), certificates,
            int(mversion) if mversion is not None else None,
        )  # fmt: skip
        return _component(component, certificates)

    async def _update(self, form: dict[str, Any]) -> dict[str, Any]:
        found = await self._directory.update(_actor(form), _text(form, "code"), _contact(form))
        return _component(found)

    async def _renew(self, form: dict[str, Any]) -> dict[str, Any]:
        return await self.renew(_actor(form), form)

    async def renew(self, actor: str, form: dict[str, Any]) -> dict[str, Any]:
        code = _text(form, "code")
        certificates = await self._certificates(code, form)
        if not certificates:
            raise Refusal(Rule.USAGE, "give a key or a certificate for at least one kind")
        found = await self._directory.add_certificates(actor, code, certificates)
        return _component(found, certificates)

    async def _revoke(self, form: dict[str, Any]) -> dict[str, Any]:
        found = await self._directory.revoke(
            _actor(form), _text(form, "code"), _text(form, "certificate_id"), _text(form, "reason")
        )
        return _component(found)

    async def _remove(self, form: dict[str, Any]) -> dict[str, Any]:
        code = _text(form, "code")
        await self._directory.remove(_actor(form), code, _text(form, "reason"))
        return {"removed": code}

    async def _nodes(self, form: dict[str, Any]) -> list[dict[str, Any]]:
        return [_node(node) for node in await self._synchroniser.nodes()]

    async def _import_nodes(self, form: dict[str, Any]) -> dict[str, Any]:
        data = _text(form, "file").encode()
        imported = await self._synchroniser.import_list(_actor(form), data)
        return {"nodes": [node.code for node in imported]}

    async def _synchronise(self, form: dict[str, Any]) -> list[dict[str, Any]]:
        return [_node(node) for node in await self._synchroniser.synchronise()]

    async def _messages(self, form: dict[str, Any]) -> list[dict[str, Any]]:
        after = int(form.get("after") or 0)
        entries = await self._store.read(lambda unit: unit.entries(after, _PAGE))
        return [
            {
                "number": e.number,
                "message_id": e.message_id,
                "sender": e.sender,
                "receiver": e.receiver,
                "business_type": e.business_type,
                "internal_type": e.internal_type.value,
                "state": e.state.value,
                "size": e.size,
                "transferred_at": e.transferred_at.isoformat(),
                "expires_at": None if e.expires_at is None else e.expires_at.isoformat(),
            }
            for e in entries
        ]

    async def _expire(self, form: dict[str, Any]) -> dict[str, Any]:
        return {"expired": [entry.message_id for entry in await self._upkeep.expire()]}

    async def _purge(self, form: dict[str, Any]) -> dict[str, Any]:
        return {"purged": await self._upkeep.purge(), "journal": await self._upkeep.prune()}

    async def _archive_now(self, form: dict[str, Any]) -> dict[str, Any]:
        before = self._clock.now() - timedelta(seconds=float(form.get("older_than_seconds") or 0))
        files, count = await self._archive.run(before)
        row = AdministrationRow(self._clock.now(), _actor(form), "archive", after=str(count))
        await self._store.run(lambda unit: unit.journal.append(row))
        return {
            "file": str(files[-1]) if files else "",
            "files": [str(file) for file in files],
            "messages": count,
        }

    async def _certificates(self, code: str, form: dict[str, Any]) -> list[Certificate]:
        """A public key is certified by the INTEGRATED CA; a certificate comes from an EXTERNAL one."""
        found = []
        for kind in KINDS:
            item = form.get(kind.value.lower())
            if item is None:
                continue
            try:
                what, der = item["is"], binascii.a2b_base64(item["der"])
            except (KeyError, TypeError, ValueError):
                raise Refusal(Rule.USAGE, f"{kind}: give 'is' and 'der'") from None
            if what == "key":
                found.append(await self._certify(code, kind, der))
            elif kind is CertificateKind.AUTHENTICATION:
                # Cl. 3.16.3.2: only the network itself issues them.
                raise Refusal(
                    Rule.REGISTRATION_KEYS,
                    "an AUTHENTICATION certificate is issued by the INTEGRATED CA: give a key",
                )
            else:
                found.append(
                    await asyncio.to_thread(self._read_external, der, kind, self._clock.now())
                )
        return found


def _component(component: NodeComponent, issued: Sequence[Certificate] = ()) -> dict[str, Any]:
    return {
        "code": component.code,
        "type": component.type.value,
        "node": component.routing.node,
        "organization": component.contact.organization,
        "mversion": component.mversion,
        "urls": list(component.routing.urls),
        "certificates": [
            {
                "id": known.certificate.certificate_id,
                "type": known.certificate.kind.value,
                "revoked": known.revoked,
                "not_after": known.certificate.not_after.isoformat(),
            }
            for known in component.certificates
        ],
        "issued": {
            c.kind.value.lower(): binascii.b2a_base64(c.der, newline=False).decode("ascii")
            for c in issued
        },
    }


def _node(node: RemoteNode) -> dict[str, Any]:
    return {
        "code": node.code,
        "urls": list(node.urls),
        "mversion": node.mversion,
        "dversion": node.dversion,
        "last_success": None if node.last_success is None else node.last_success.isoformat(),
        "problem": node.problem,
    }


def _contact(form: dict[str, Any]) -> Contact:
    return Contact(
        _text(form, "organization"), _text(form, "person"), _text(form, "email"),
        _text(form, "phone"),
    )  # fmt: skip


def _text(form: dict[str, Any], name: str) -> str:
    value = form.get(name)
    if not isinstance(value, str) or not value:
        raise Refusal(Rule.USAGE, f"'{name}' is missing")
    return value


def _actor(form: dict[str, Any]) -> str:
    return f"{OPERATOR}:{str(form.get('by') or 'unknown')[:100]}"
