"""A business application on proton's own reactor, driven by test_application_channel.py.

    application_proton.py PORT TASK

The same tasks and the same answer as application_rhea.js.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from proton import Delivery, Message, SSLDomain
from proton.handlers import MessagingHandler
from proton.reactor import Container


class Application(MessagingHandler):
    def __init__(self, port: int, task: dict[str, Any]) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True, peer_close_is_error=True)
        self.port = port
        self.task = task
        self.sent = 0
        self.result: dict[str, Any] = {"outcomes": [], "messages": [], "error": None}

    def on_start(self, event: Any) -> None:
        task, tls = self.task, self.task.get("tls")
        options: dict[str, Any] = {"reconnect": False}
        if tls:
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(tls["ca"])
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
            if "cert" in tls:
                domain.set_credentials(tls["cert"], tls["key"], None)
            options |= {"ssl_domain": domain}
        if "user" in task:
            options |= {
                "user": task["user"],
                "password": task["password"],
                "allowed_mechs": "PLAIN",
                "allow_insecure_mechs": True,
            }
        else:
            options |= {"allowed_mechs": "EXTERNAL"}
        scheme = "amqps" if tls else "amqp"
        self.connection = event.container.connect(f"{scheme}://127.0.0.1:{self.port}", **options)
        if "send" in task:
            event.container.create_sender(self.connection, task["send"])
        else:
            receiver = event.container.create_receiver(self.connection, task["consume"])
            receiver.flow(task.get("count") or 0)

    def _closed(self, endpoint: Any) -> None:
        condition = endpoint.remote_condition
        if condition is not None:
            self.result["error"] = [condition.name, condition.description]
        self.connection.close()

    def on_link_error(self, event: Any) -> None:
        self._closed(event.link)

    def on_connection_error(self, event: Any) -> None:
        self._closed(event.connection)

    def on_transport_error(self, event: Any) -> None:
        condition = event.transport.condition
        self.result["error"] = self.result["error"] or [condition.name, condition.description]

    def on_link_opened(self, event: Any) -> None:
        if event.link.is_receiver and not self.task.get("count"):
            self.connection.close()

    def on_sendable(self, event: Any) -> None:
        messages = self.task["messages"]
        while event.sender.credit and self.sent < len(messages):
            event.sender.send(_message(messages[self.sent]))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self._outcome("accepted", event)

    def on_rejected(self, event: Any) -> None:
        self._outcome("rejected", event)

    def on_released(self, event: Any) -> None:
        is_modified = event.delivery.remote_state == Delivery.MODIFIED
        self._outcome("modified" if is_modified else "released", event)

    def _outcome(self, name: str, event: Any) -> None:
        condition = event.delivery.remote.condition
        self.result["outcomes"].append([name, condition.name if condition else None])
        if len(self.result["outcomes"]) == len(self.task["messages"]):
            self.connection.close()

    def on_message(self, event: Any) -> None:
        message = event.message
        is_data = isinstance(message.body, bytes | memoryview)
        self.result["messages"].append(
            {
                "properties": {k: _plain(v) for k, v in (message.properties or {}).items()},
                "correlation": _plain(message.correlation_id),
                "id": _plain(message.id),
                "count": message.delivery_count,
                "durable": message.durable,
                "kind": "data" if is_data else "value",
                "body": bytes(message.body).decode() if is_data else message.body,
            }
        )
        outcome = self.task.get("outcome", "accept")
        if outcome == "crash":
            if len(self.result["messages"]) == self.task["count"]:
                print(json.dumps(self.result), flush=True)
                os._exit(0)
            return
        states = {
            "accept": Delivery.ACCEPTED,
            "reject": Delivery.REJECTED,
            "release": Delivery.RELEASED,
            "modified": Delivery.MODIFIED,
        }
        if outcome == "modified":
            event.delivery.local.failed = True
            event.delivery.local.undeliverable = True
        event.delivery.update(states[outcome])
        event.delivery.settle()
        if len(self.result["messages"]) == self.task["count"]:
            self.connection.close()


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _message(fields: dict[str, Any]) -> Message:
    message = Message(durable=True, properties=fields.get("properties", {}))
    if "correlation" in fields:
        message.correlation_id = fields["correlation"]
    if "id" in fields:
        message.id = fields["id"]
    if "value" in fields:
        message.body = fields["value"]
    else:
        message.inferred = True
        message.body = b"x" * fields["size"] if "size" in fields else fields["body"].encode()
    return message


def main() -> None:
    port, text = sys.argv[1:]
    application = Application(int(port), json.loads(text))
    Container(application).run()
    print(json.dumps(application.result))


main()
