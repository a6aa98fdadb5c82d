"""A business application on zeep: all five services, one version of SOAP."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import requests
from zeep import Client, Transport
from zeep.exceptions import Fault


def main(
    sender_url: str,
    recipient_url: str,
    version: str,
    user: str,
    password: str,
    message_type: str,
    file: str,
    wsdl: str = "",
) -> None:
    """`wsdl` is a description that the application has kept; otherwise the endpoint is asked for it."""
    session = requests.Session()
    session.auth = (user, password)

    def service(url: str) -> tuple[Client, Any]:
        client = Client(wsdl or url + "?wsdl", transport=Transport(session=session))
        port = "MadesEndpointSOAP11" if version == "1.1" else "MadesEndpointSOAP12"
        bound = client.bind("MadesEndpointV2Service", port)
        return client, client.create_service(bound._binding.name, url) if wsdl else bound

    (client, sender), (_, recipient) = service(sender_url), service(recipient_url)

    def until(message_id: str, state: str) -> Any:
        for _ in range(600):
            status = sender.CheckMessageStatus(messageID=message_id)
            if status.state == state:
                return status
            time.sleep(0.05)
        raise SystemExit(f"{message_id} never became {state}")

    def fault(operation: str, item: str, call: Callable[[], Any]) -> str:
        try:
            call()
        except Fault as error:
            (detail,) = error.detail
            element = client.get_element(f"{{http://mades.entsoe.eu/2/}}{operation}Error")
            value = element.parse(detail, client.wsdl.types)
            return f"{value.errorCode} {value[item]}"
        raise SystemExit(f"{operation} was not refused")

    content = Path(file).read_bytes()
    message = {
        "receiverCode": "E2",
        "messageType": message_type,
        "content": content,
        "senderApplication": "App7",
        "baMessageID": "4711",
    }
    told: dict[str, Any] = {}
    conversation = f"c-{message_type}"
    told["sent"] = sender.SendMessage(message=message, conversationID=conversation)
    told["again"] = sender.SendMessage(message=message, conversationID=conversation)
    until(sender.ConnectivityTest(receiverCode="E2", messageType=message_type), "DELIVERED")
    told["received before"] = until(told["sent"], "DELIVERED").receiveTimestamp
    found = recipient.ReceiveMessage(messageType=message_type, downloadMessage=False)
    told["waiting"] = str(found.remainingMessagesCount)
    told["bare"] = str(len(found.receivedMessage.content or b""))
    found = recipient.ReceiveMessage(messageType=message_type, downloadMessage=True)
    got = found.receivedMessage
    told["remaining"] = str(found.remainingMessagesCount)
    told["same"] = str(got.content == content).lower()
    told["application"], told["ba"] = got.senderApplication, got.baMessageID
    told["from"] = got.senderCode
    told["confirmed"] = recipient.ConfirmReceiveMessage(messageID=got.messageID)
    found = recipient.ReceiveMessage(messageType=message_type, downloadMessage=True)
    told["left"] = "something" if found.receivedMessage else "nothing"
    status = until(told["sent"], "RECEIVED")
    told["trace"] = " ".join(f"{i.state}@{i.component}" for i in status.trace.trace)
    told["received after"] = str(status.receiveTimestamp is not None).lower()
    told["SendMessage"] = fault(
        "SendMessage",
        "receiverCode",
        lambda: sender.SendMessage(message={**message, "receiverCode": "NOBODY"}),
    )
    told["ConnectivityTest"] = fault(
        "ConnectivityTest",
        "receiverCode",
        lambda: sender.ConnectivityTest(receiverCode="NOBODY", messageType=message_type),
    )
    told["ReceiveMessage"] = fault(
        "ReceiveMessage",
        "messageType",
        lambda: recipient.ReceiveMessage(messageType="A_1", downloadMessage=True),
    )
    for operation in ("ConfirmReceiveMessage", "CheckMessageStatus"):
        told[operation] = fault(
            operation, "messageID", lambda op=operation: recipient[op](messageID="nothing")
        )
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
