"""Alerts on their way to people: by e-mail and to a webhook."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import smtplib
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

from gridpost.core.alerts import Notice, Phase
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.web_post import WebPost, web_context

_SECONDS = 20.0
_SHOWN = 50


@dataclass(frozen=True, slots=True)
class MailServer:
    host: str
    port: int
    sender: str
    recipients: tuple[str, ...]
    security: str = "starttls"
    """`starttls`, `tls` or `none`."""
    user: str = ""
    password: str = ""
    ca: Path | None = None


class MailNotifier:
    name = "email"

    def __init__(self, server: MailServer) -> None:
        self._server = server

    async def tell(self, component: str, notices: Sequence[Notice]) -> None:
        await asyncio.to_thread(self._send, _mail(self._server, component, notices))

    def _send(self, mail: EmailMessage) -> None:
        server = self._server
        context = ssl.create_default_context(cafile=server.ca)
        if server.security == "tls":
            session: smtplib.SMTP = smtplib.SMTP_SSL(
                server.host, server.port, timeout=_SECONDS, context=context
            )
        else:
            session = smtplib.SMTP(server.host, server.port, timeout=_SECONDS)
        with session:
            if server.security == "starttls":
                session.starttls(context=context)
            if server.user:
                session.login(server.user, server.password)
            session.send_message(mail)


def _mail(server: MailServer, component: str, notices: Sequence[Notice]) -> EmailMessage:
    mail = EmailMessage()
    first = notices[0]
    more = f" and {len(notices) - 1} more" if len(notices) > 1 else ""
    kind = first.condition.kind.replace("_", " ")
    mail["Subject"] = f"[gridpost {component}] {kind} {first.phase.value}{more}"
    mail["From"] = server.sender
    mail["To"] = ", ".join(server.recipients)
    lines = [_line(notice) for notice in notices[:_SHOWN]]
    if len(notices) > _SHOWN:
        lines.append(f"and {len(notices) - _SHOWN} more; the log of {component} has them all")
    mail.set_content("\n".join(lines) + "\n")
    return mail


def _line(notice: Notice) -> str:
    word = "over" if notice.phase is Phase.CLEARED else notice.condition.severity.value
    return f"{notice.at:%Y-%m-%d %H:%M:%S} UTC {word}: {notice.condition.text}"


class WebhookNotifier:
    """One POST of JSON; with a secret, `X-Gridpost-Signature` is its HMAC-SHA-256 over the body."""

    name = "webhook"

    def __init__(self, url: str, secret: str = "", ca: Path | None = None) -> None:
        self._url = url
        self._secret = secret.encode()
        self._context = web_context(str(ca or ""))

    async def tell(self, component: str, notices: Sequence[Notice]) -> None:
        body = json.dumps(
            {
                "component": component,
                "alerts": [
                    {
                        "phase": notice.phase.value,
                        "kind": notice.condition.kind.value,
                        "subject": notice.condition.subject,
                        "severity": notice.condition.severity.value,
                        "text": notice.condition.text,
                        "since": notice.since.isoformat(),
                        "at": notice.at.isoformat(),
                    }
                    for notice in notices
                ],
            }
        ).encode()
        headers = {"content-type": "application/json"}
        if self._secret:
            digest = hmac.new(self._secret, body, hashlib.sha256).hexdigest()
            headers["x-gridpost-signature"] = f"sha256={digest}"
        post = WebPost(self._context, seconds=_SECONDS)
        try:
            status, _, _ = await post(self._url, body, headers)
        finally:
            await post.close()
        if status >= 300:
            raise Refusal(Rule.WEB_REFUSED, f"{self._url} answered {status}")
