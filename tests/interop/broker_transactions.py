"""An endpoint on proton that works in local transactions, driven by test_broker_transactions.py.

    broker_transactions.py PORT FOLDER TASK

TASK is JSON: {"produce": QUEUE, "messages": [...], "fail": BOOL} or {"consume": QUEUE, "count": N,
"fail": BOOL}. Prints one JSON object: what happened.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from broker_proton import Endpoint, _message
from proton.handlers import TransactionHandler
from proton.reactor import Container


class Transacting(Endpoint, TransactionHandler):
    """Everything in one transaction, which is then committed or rolled back."""

    transaction: Any = None
    sender: Any = None
    receiver: Any = None

    def begin(self, event: Any) -> None:
        if "produce" in self.task:
            event.container.create_sender(self.connection, self.task["produce"])
        else:
            self.receiver = event.container.create_receiver(self.connection, self.task["consume"])
        event.container.declare_transaction(self.connection, handler=self)

    def on_link_opened(self, event: Any) -> None:
        """Nothing ends here."""

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        if self.receiver is not None:
            self.receiver.flow(self.task["count"])
        self._work()

    def on_sendable(self, event: Any) -> None:
        if event.sender.target.address:
            self.sender = event.sender
            self._work()

    def _work(self) -> None:
        if self.transaction is None or self.sender is None:
            return
        messages = self.task["messages"]
        while self.sender.credit and self.sent < len(messages):
            self.transaction.send(self.sender, _message(messages[self.sent]))
            self.sent += 1

    def on_delivery(self, event: Any) -> None:
        if event.delivery.link == self.sender and event.delivery.remote_state == 0x34:
            data = event.delivery.remote.data
            self.result["outcomes"].append(int(data[1].descriptor))
            event.delivery.settle()
            if len(self.result["outcomes"]) == len(self.task["messages"]):
                self._discharge()

    def on_message(self, event: Any) -> None:
        self.result["messages"].append(event.message.properties["messageID"])
        self.transaction.accept(event.delivery)
        if len(self.result["messages"]) == self.task["count"]:
            self._discharge()

    def _discharge(self) -> None:
        if self.task.get("vanish"):
            self.finish()
        elif self.task.get("fail"):
            self.transaction.abort()
        else:
            self.transaction.commit()

    def _end(self, how: str) -> None:
        self.result["transaction"] = how
        self.finish()

    def on_transaction_committed(self, event: Any) -> None:
        self._end("committed")

    def on_transaction_aborted(self, event: Any) -> None:
        self._end("aborted")

    def on_transaction_commit_failed(self, event: Any) -> None:
        self._end("failed")


def main() -> None:
    port, folder, task = sys.argv[1:]
    endpoint = Transacting(int(port), Path(folder), json.loads(task))
    Container(endpoint).run()
    print(json.dumps(endpoint.result))


if __name__ == "__main__":
    main()
