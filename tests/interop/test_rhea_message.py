"""Messages exchanged with rhea, an AMQP 1.0 library that shares no code with Proton or with us."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gridpost.core.message import InternalType
from gridpost.wire.mades import metadata
from gridpost.wire.mades.amqp_message import decode, encode
from support.samples import NOW, internal_message, sealed, standard_message

HERE = Path(__file__).parent
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed"),
    pytest.mark.skipif(
        not (HERE / "node_modules" / "rhea").is_dir(),
        reason="rhea is not installed: run npm ci in tests/interop",
    ),
]


def rhea(request: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [str(NODE), str(HERE / "rhea_message.js")],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def milliseconds(at: timedelta) -> int:
    return int((NOW + at).timestamp() * 1000)


@pytest.mark.parametrize("kind", InternalType)
def test_rhea_reads_every_field_and_type_of_ours(kind: InternalType) -> None:
    message = sealed(internal_message(kind), bytes(range(256)) * 2)
    signed = message.metadata
    answer = rhea({"decode": encode(message, None, NOW).hex()})
    read = answer["message"]
    assert (read["durable"], read["ttl"]) == (True, 3_600_000)
    assert (read["message_id"], read["subject"]) == (signed.message_id, signed.message_type)
    assert read.get("correlation_id", "") == signed.related_message_id
    assert read["absolute_expiry_time"] == milliseconds(timedelta(hours=1))
    expected = {
        "messageID": signed.message_id,
        "receiverCode": signed.receiver_code,
        "senderCode": signed.sender_code,
        "generated": milliseconds(timedelta(seconds=-2)),
        "internalType": kind.value,
        "messageMversion": 2,
    }
    if not kind.is_acknowledgement:
        expected |= {"senderApplication": "SCADA-7", "baMessageID": "ba-1"}
    assert read["application_properties"] == expected
    assert read["body"]["section"] == 0x76
    text, body = read["body"]["content"]
    assert metadata.decode(text) == signed
    assert bytes.fromhex(body["hex"]) == message.body

    seen = answer["types"]
    assert seen["properties"]["absolute_expiry_time"] == "Timestamp"
    assert seen["application_properties"]["generated"] == "Timestamp"
    assert seen["application_properties"]["messageMversion"] in ("Int", "SmallInt")
    assert seen["body"] == ["Str32", "Vbin32"]


def test_a_message_of_rhea_is_read() -> None:
    signed = standard_message()
    body = bytes(range(256))
    answer = rhea(
        {
            "encode": {
                "durable": True,
                "ttl": 3_600_000,
                "subject": signed.message_type,
                "absolute_expiry_time": milliseconds(timedelta(hours=1)),
                "application_properties": {
                    "messageID": signed.message_id,
                    "receiverCode": signed.receiver_code,
                    "senderCode": signed.sender_code,
                    "senderApplication": signed.sender_application,
                    "baMessageID": signed.ba_message_id,
                    "generated": signed.generated.milliseconds,
                    "internalType": signed.internal_type.value,
                    "messageMversion": 2,
                },
                "body": [metadata.encode(signed), body.hex()],
            }
        }
    )
    received = decode(bytes.fromhex(answer["hex"]))
    assert received.message == sealed(signed, body)
    assert received.fields.ttl == 3_600_000
