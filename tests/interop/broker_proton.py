"""An endpoint on proton's own reactor and TLS, driven by test_broker_clients.py.

    broker_proton.py PORT FOLDER TASK

FOLDER holds chain.pem, key.pem and roots.pem. TASK is JSON: {"produce": QUEUE, "messages": [...]}
or {"consume": QUEUE, "count": N}. "tls": false speaks plain AMQP, "shown": false shows no certificate,
"after": FILE sends nothing before the file is there. Prints one JSON object: what happened.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from proton import Message, SSLDomain, int32, timestamp
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Endpoint(MessagingHandler):
    def __init__(self, port: int, folder: Path, task: dict[str, Any]) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True, peer_close_is_error=True)
        self.url = f"{'amqps' if task.get('tls', True) else 'amqp'}://127.0.0.1:{port}"
        self.folder = folder
        self.task = task
        self.sent = 0
        self.result: dict[str, Any] = {"outcomes": [], "messages": [], "error": None}

    def on_start(self, event: Any) -> None:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        if self.task.get("shown", True):
            chain, key = self.folder / "chain.pem", self.folder / "key.pem"
            domain.set_credentials(str(chain), str(key), None)
        domain.set_trusted_ca_db(str(self.folder / "roots.pem"))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
        self.connection = event.container.connect(
            self.url,
            ssl_domain=domain if self.task.get("tls", True) else None,
            allowed_mechs="EXTERNAL",
            user="SOMEBODY-ELSE",
            reconnect=False,
        )
        self.begin(event)

    def begin(self, event: Any) -> None:
        if "produce" in self.task:
            event.container.create_sender(self.connection, self.task["produce"])
        else:
            receiver = event.container.create_receiver(self.connection, self.task["consume"])
            receiver.flow(self.task.get("count") or 1)

    def finish(self) -> None:
        self.connection.close()

    def _closed(self, endpoint: Any) -> None:
        condition = endpoint.remote_condition
        if condition is not None:
            self.result["error"] = [condition.name, condition.description]
        self.finish()

    def on_link_error(self, event: Any) -> None:
        self._closed(event.link)

    def on_connection_error(self, event: Any) -> None:
        self._closed(event.connection)

    def on_transport_error(self, event: Any) -> None:
        condition = event.transport.condition
        self.result["error"] = self.result["error"] or [condition.name, condition.description]

    def on_link_opened(self, event: Any) -> None:
        if event.link.is_receiver and not self.task.get("count"):
            self.finish()

    def on_sendable(self, event: Any) -> None:
        self.sender = event.sender
        self._send(event.container)

    def _send(self, container: Any) -> None:
        messages, after = self.task["messages"], self.task.get("after")
        if after and not Path(after).exists():
            container.schedule(0.05, self)
            return
        while self.sender.credit and self.sent < len(messages):
            self.sender.send(_message(messages[self.sent]))
            self.sent += 1
        if not messages:
            self.finish()

    def _outcome(self, event: Any, name: str) -> None:
        condition = event.delivery.remote.condition
        self.result["outcomes"].append([name, condition.name if condition else None])
        if len(self.result["outcomes"]) == len(self.task["messages"]):
            self.finish()

    def on_accepted(self, event: Any) -> None:
        self._outcome(event, "accepted")

    def on_rejected(self, event: Any) -> None:
        self._outcome(event, "rejected")

    def on_message(self, event: Any) -> None:
        message = event.message
        # proton's Message knows one value as a body: of a sequence it shows the first section.
        body = message.body
        last = body[1] if isinstance(body, list) else body
        self.result["messages"].append(
            [message.properties["messageID"], bytes(last).decode(), message.delivery_count]
        )
        if self.task.get("accept", True):
            self.accept(event.delivery)
        if len(self.result["messages"]) == self.task["count"]:
            event.container.schedule(0.1, self)

    def on_timer_task(self, event: Any) -> None:
        if "produce" in self.task:
            self._send(event.container)
        else:
            self.finish()


def _message(fields: dict[str, Any]) -> Message:
    now = int(time.time() * 1000)
    drop = fields.get("drop", [])
    properties = {
        "messageID": fields["id"],
        "receiverCode": fields["receiver"],
        "senderCode": fields["sender"],
        "generated": timestamp(now),
        "internalType": "STANDARD_MESSAGE",
        "messageMversion": int32(2),
    }
    message = Message(
        durable=True,
        id=fields["id"],
        properties={k: v for k, v in properties.items() if k not in drop},
    )
    if "subject" not in drop:
        message.subject = fields["subject"]
    if "ttl" not in drop:
        message.ttl = fields["ttl"] / 1000
    if "absolute_expiry_time" not in drop:
        message.expiry_time = (now + fields["ttl"]) / 1000
    message.inferred = True
    message.body = ["<metadata/>", fields["body"].encode()]
    return message


def main() -> None:
    port, folder, task = sys.argv[1:]
    endpoint = Endpoint(int(port), Path(folder), json.loads(task))
    Container(endpoint).run()
    print(json.dumps(endpoint.result))


if __name__ == "__main__":
    main()
