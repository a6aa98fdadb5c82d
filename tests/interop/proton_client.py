"""An AMQP client on proton's own reactor and TLS, driven by test_clients.py.

    proton_client.py PORT FOLDER TASK [ADDRESS] [NUMBER]

FOLDER holds chain.pem, key.pem and roots.pem. Prints one JSON object: what happened.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from proton import Delivery, Described, Message, SSLDomain, symbol, ulong
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, ReceiverOption, SenderOption


class ExactlyOnce(SenderOption, ReceiverOption):
    def apply(self, link: Any) -> None:
        link.rcv_settle_mode = 1


class Client(MessagingHandler):
    """Connects with EXTERNAL over TLS; ends when `finish` is called or anything is closed."""

    def __init__(self, port: int, folder: Path, address: str, number: int) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True, peer_close_is_error=True)
        self.url = f"amqps://127.0.0.1:{port}"
        self.folder = folder
        self.address = address
        self.number = number
        self.result: dict[str, Any] = {"outcomes": [], "messages": [], "error": None}

    def on_start(self, event: Any) -> None:
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_credentials(str(self.folder / "chain.pem"), str(self.folder / "key.pem"), None)
        domain.set_trusted_ca_db(str(self.folder / "roots.pem"))
        domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
        self.container = event.container
        self.connection = event.container.connect(
            self.url,
            ssl_domain=domain,
            allowed_mechs="EXTERNAL",
            user="SOMEBODY-ELSE",
            reconnect=False,
        )
        self.begin()

    def begin(self) -> None:
        raise NotImplementedError

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
        self.result["error"] = [
            event.transport.condition.name,
            event.transport.condition.description,
        ]


class Produce(Client):
    """NUMBER messages, each with an outcome."""

    options: Any = None
    sent = 0

    def begin(self) -> None:
        self.sender = self.container.create_sender(
            self.connection, self.address, options=self.options
        )

    def on_sendable(self, event: Any) -> None:
        self.result["max_message_size"] = self.sender.remote_max_message_size
        while event.sender.credit and self.sent < self.number:
            message = Message(
                body=f"message {self.sent}", subject="A10", properties={"n": self.sent}
            )
            event.sender.send(message)
            self.sent += 1

    def _outcome(self, event: Any, name: str) -> None:
        condition = event.delivery.remote.condition
        self.result["outcomes"].append([name, condition.name if condition else None])

    def on_accepted(self, event: Any) -> None:
        self._outcome(event, "accepted")

    def on_rejected(self, event: Any) -> None:
        self._outcome(event, "rejected")

    def on_released(self, event: Any) -> None:
        self._outcome(
            event, "released" if event.delivery.remote_state == Delivery.RELEASED else "modified"
        )

    def on_settled(self, event: Any) -> None:
        if len(self.result["outcomes"]) == self.number:
            self.finish()


class ProduceExactlyOnce(Produce):
    """The receiver settles second: we settle when its outcome is here."""

    options = ExactlyOnce()

    def on_accepted(self, event: Any) -> None:
        self._outcome(event, "accepted" if not event.delivery.settled else "settled too early")
        event.delivery.settle()
        if len(self.result["outcomes"]) == self.number:
            self.finish()


class ProduceLarge(Produce):
    """One message of NUMBER octets."""

    def on_sendable(self, event: Any) -> None:
        if not self.sent:
            self.sent, size = 1, self.number
            self.number = 1
            event.sender.send(Message(body=b"x" * size))


class Consume(Client):
    """NUMBER messages, each accepted."""

    options: Any = None

    def begin(self) -> None:
        self.receiver = self.container.create_receiver(
            self.connection, self.address, options=self.options
        )
        self.receiver.flow(self.number)

    def on_message(self, event: Any) -> None:
        body = event.message.body
        self.result["messages"].append(len(body) if isinstance(body, memoryview | bytes) else body)
        self.result["delivery_count"] = event.message.delivery_count
        self.decide(event.delivery)
        if len(self.result["messages"]) == self.number:
            self.finish()

    def decide(self, delivery: Any) -> None:
        delivery.update(Delivery.ACCEPTED)
        delivery.settle()


class Reject(Consume):
    def decide(self, delivery: Any) -> None:
        delivery.update(Delivery.REJECTED)
        delivery.settle()


class ConsumeExactlyOnce(Consume):
    """Says the outcome and waits for the server to settle."""

    options = ExactlyOnce()

    def on_message(self, event: Any) -> None:
        self.result["messages"].append(event.message.body)
        event.delivery.update(Delivery.ACCEPTED)

    def on_settled(self, event: Any) -> None:
        self.result["outcomes"].append("settled")
        event.delivery.settle()
        if len(self.result["outcomes"]) == self.number:
            self.finish()


class Drain(Consume):
    """Credit for more than there is; the rest has to come back."""

    def begin(self) -> None:
        self.receiver = self.container.create_receiver(self.connection, self.address)
        self.receiver.drain(self.number)

    def on_link_flow(self, event: Any) -> None:
        if (
            event.receiver
            and event.receiver.remote_condition is None
            and not event.receiver.draining()
        ):
            self.result["drained"] = event.receiver.drained()
            self.finish()


class Transact(Client, TransactionHandler):
    """NUMBER messages in one transaction, which is then committed, or rolled back."""

    fails = False
    sent = 0
    transaction: Any = None

    def begin(self) -> None:
        self.sender = self.container.create_sender(self.connection, self.address)
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self._send()

    def on_sendable(self, event: Any) -> None:
        self._send()

    def _send(self) -> None:
        while self.transaction and self.sender.credit and self.sent < self.number:
            self.transaction.send(self.sender, Message(body=f"message {self.sent}"))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        if event.delivery.link == self.sender:
            self._sent(event)

    def on_delivery(self, event: Any) -> None:
        if event.delivery.link == self.sender and event.delivery.remote_state == 0x34:
            self._sent(event)

    def _sent(self, event: Any) -> None:
        data = event.delivery.remote.data
        accepted = Described(ulong(0x24), [])
        self.result["outcomes"].append(bool(data and data[1] == accepted))
        event.delivery.settle()
        if len(self.result["outcomes"]) == self.number:
            self.transaction.abort() if self.fails else self.transaction.commit()

    def _end(self, how: str) -> None:
        self.result["transaction"] = how
        self.finish()

    def on_transaction_committed(self, event: Any) -> None:
        self._end("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self._end("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        condition = event.delivery.remote.condition
        self._end(f"failed {condition.name if condition else None}")

    def on_transaction_declare_failed(self, event: Any) -> None:
        self._end("not declared")


class TransactAborted(Transact):
    fails = True


class TransactConsume(Client, TransactionHandler):
    """NUMBER messages accepted in one transaction, which is then committed."""

    transaction: Any = None
    fails = False

    def begin(self) -> None:
        self.taken: list[Any] = []
        self.receiver = self.container.create_receiver(self.connection, self.address)
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.receiver.flow(self.number)

    def on_message(self, event: Any) -> None:
        self.result["messages"].append(event.message.body)
        self.transaction.accept(event.delivery)
        if len(self.result["messages"]) == self.number:
            self.transaction.abort() if self.fails else self.transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.result["transaction"] = "committed"
        self.finish()

    def on_transaction_aborted(self, event: Any) -> None:
        self.result["transaction"] = "aborted"
        self.finish()


class TransactForeign(Produce):
    """Discharge of a transaction that was never declared."""

    def begin(self) -> None:
        from proton import Terminus

        self.sender = self.container.create_sender(self.connection, None, name="coordinator")
        self.sender.target.type = Terminus.COORDINATOR

    def on_sendable(self, event: Any) -> None:
        if not self.sent:
            self.sent = 1
            event.sender.send(
                Message(body=Described(symbol("amqp:discharge:list"), [b"nobody's", False]))
            )


TASKS = {
    "produce": Produce,
    "produce-exactly-once": ProduceExactlyOnce,
    "produce-large": ProduceLarge,
    "consume": Consume,
    "reject": Reject,
    "consume-exactly-once": ConsumeExactlyOnce,
    "drain": Drain,
    "transact": Transact,
    "transact-aborted": TransactAborted,
    "transact-consume": TransactConsume,
    "transact-foreign": TransactForeign,
}


def main() -> None:
    port, folder, task, address, number = sys.argv[1:]
    client = TASKS[task](int(port), Path(folder), address, int(number))
    Container(client).run()
    print(json.dumps(client.result))


if __name__ == "__main__":
    main()
