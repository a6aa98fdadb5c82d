"""A bus used by Qpid JMS through RabbitMQ's own AMQP 1.0 (61968-100 Annex E)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from gridpost.envelope import encode
from interop.test_jms import PASSWORD, compiled, run, write_trust_store
from support import bus_handlers
from support.bus_web import web_bus
from support.rabbitmq import EDGE, rabbitmq_node
from support.waiting import eventually

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("mvn", "javac", "java")),
    reason="Maven or a JDK is missing",
)


def write_stores(folder: Path, certificate: Path) -> None:
    own = x509.load_pem_x509_certificate((certificate / "chain.pem").read_bytes())
    root = x509.load_pem_x509_certificate((certificate / "root.pem").read_bytes())
    key = load_pem_private_key((certificate / "key.pem").read_bytes(), None)
    protection = BestAvailableEncryption(PASSWORD)
    (folder / "own.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"own", key, own, [root], protection)  # type: ignore[arg-type]
    )
    write_trust_store(folder / "trust.p12", root)


@pytest.mark.timeout(400)
@pytest.mark.req("100-E-b", component="transport")
async def test_text_and_bytes_both_ways_and_topics_over_amqp_1_0(tmp_path: Path) -> None:
    java = await compiled(tmp_path, "BusClient")
    plugins = ("rabbitmq_auth_mechanism_ssl", "rabbitmq_amqp1_0")
    (tmp_path / "rabbit").mkdir()
    (tmp_path / "bus").mkdir()
    with rabbitmq_node(tmp_path / "rabbit", plugins=plugins) as rabbit:
        write_stores(tmp_path, rabbit.certificate(EDGE))
        # What takes the place of temporary queues: reply queues that end when nobody uses them.
        policy = {"pattern": "^replies-", "definition": {"expires": 600_000}, "apply-to": "queues"}
        rabbit.api("PUT", "policies/%2F/replies", policy).raise_for_status()
        async with web_bus(rabbit, tmp_path / "bus", virtual_host="/") as site:
            await site.channel.declare_queue("lasting")
            await site.channel.bind("lasting", "TESTING", "TESTING.EVENTS.Others.*")
            request = encode(site.sender.request("get", "Notes", ids=["a"])).decode()
            start = request.index("<MessageID>") + len("<MessageID>")
            request = request[:start] + "IDENTITY" + request[start + 36 :]
            nonce = request.index("<ReplayDetection>"), request.index("</ReplayDetection>") + 18
            request = request[: nonce[0]] + request[nonce[1] :]
            (tmp_path / "request.xml").write_text(request)
            event = site.sender.event("changed", "Others", '<o:Others xmlns:o="urn:o"/>')
            (tmp_path / "event.xml").write_bytes(encode(event))
            port = str(rabbit.node.port)
            files = (str(tmp_path / "request.xml"), str(tmp_path / "event.xml"))
            code, said = await run(*java, port, str(tmp_path), *files, cwd=tmp_path, seconds=150)
            assert code == 0, said
            assert said.splitlines() == [
                # RabbitMQ has them since 4.1.
                "temporary JmsOperationTimedOutException",
                "text good by-text",
                "bytes good by-bytes",
                "event good null",
                "lasting good null",
            ]

            def rules() -> list[object]:
                queues = rabbit.api("GET", "queues/%2F").json()
                left = [q for q in queues if q["name"].startswith("replies-")]
                return [q.get("effective_policy_definition") for q in left]

            await eventually(lambda: rules() == [{"expires": 600_000}])
            heard = ("changed", event.header.message_id)
            await eventually(lambda: heard in bus_handlers.CALLS)
