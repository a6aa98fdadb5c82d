"""How each call looks on the wire: shared by the blocking and the asyncio client."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

PREFIX = "/api/v1"


@dataclass(frozen=True, slots=True)
class Call:
    method: str
    path: str
    params: dict[str, str] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None
    json: Any = None

    def arguments(self) -> dict[str, Any]:
        """For `httpx.Client.request`."""
        found: dict[str, Any] = {"method": self.method, "url": PREFIX + self.path}
        if self.params:
            found["params"] = self.params
        if self.headers:
            found["headers"] = self.headers
        if self.content is not None:
            found["content"] = self.content
        if self.json is not None:
            found["json"] = self.json
        return found


def send(
    receiver: str,
    message_type: str,
    content: bytes,
    ba_message_id: str,
    sender_application: str,
    extension: str,
    key: str | None,
) -> Call:
    if key is None:
        # 503 cl. 11.1.2 recommends this value; half of it would not be unique.
        named = sender_application and ba_message_id
        key = sender_application + ba_message_id if named else ""
    fields = {
        "receiverCode": receiver,
        "messageType": message_type,
        "baMessageID": ba_message_id,
        "senderApplication": sender_application,
        "extension": extension,
    }
    headers = {"content-type": "application/octet-stream"}
    if key:
        headers["idempotency-key"] = key
    params = {name: value for name, value in fields.items() if value}
    return Call("POST", "/messages", params, headers, content)


def receive(message_type: str, content: bool) -> Call:
    params = {"messageType": message_type, "content": "true" if content else "false"}
    return Call("GET", "/received", params)


def confirm(message_id: str) -> Call:
    return Call("POST", f"/received/{_part(message_id)}/confirm")


def act(path: str, message_id: str, action: str, reason: str) -> Call:
    return Call("POST", f"/{path}/{_part(message_id)}/{action}", json={"reason": reason})


def pause(kind: str, value: str, reason: str) -> Call:
    return Call("POST", "/holds", json={"kind": kind, "value": value, "reason": reason})


def resume(kind: str, value: str) -> Call:
    return Call("DELETE", "/holds", {"kind": kind, "value": value})


def maintenance(on: bool, reason: str) -> Call:
    return Call("PUT", "/maintenance", json={"on": on, "reason": reason})


def about(message_id: str, what: str, side: str) -> Call:
    return Call("GET", f"/messages/{_part(message_id)}{what}", {"side": side})


def search(params: dict[str, str]) -> Call:
    return Call("GET", "/messages", {name: value for name, value in params.items() if value})


def further(params: dict[str, str], more: int | None, found: int) -> Call | None:
    """A page of a box of millions may be short although there is more: then on to the next."""
    wanted = int(params.get("limit") or 100)
    if more is None or found >= wanted:
        return None
    return search({**params, "before": str(more), "limit": str(wanted - found)})


def test(receiver: str, message_type: str) -> Call:
    body = {"receiverCode": receiver, "messageType": message_type}
    return Call("POST", "/connectivity-tests", json=body)


def options(
    url: str,
    user: str,
    password: str,
    certificate: Path | None,
    key: Path | None,
    ca: Path | None,
    timeout: float,
) -> dict[str, Any]:
    """For the constructor of an httpx client; proxies of the environment are not used."""
    verify: ssl.SSLContext | bool = True
    if url.lower().startswith("https"):
        context = ssl.create_default_context(cafile=ca)
        if certificate is not None:
            context.load_cert_chain(certificate, key)
        verify = context
    return {
        "base_url": url.rstrip("/"),
        "auth": (user, password) if user else None,
        "verify": verify,
        "timeout": timeout,
        "trust_env": False,
    }


def _part(text: str) -> str:
    return quote(text, safe="")
