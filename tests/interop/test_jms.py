"""The AMQP server against Qpid JMS: a transacted session, sent, rolled back and redelivered."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from gridpost.transports.amqp10 import AmqpLimits, AmqpServer
from support.authority import Authority, Clock
from support.memory_broker import MemoryBroker

HERE = Path(__file__).parent
LIBRARIES = HERE.parents[1] / "var" / "interop-jms"
PASSWORD = b"changeit"

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("mvn", "javac", "java")),
    reason="Maven or a JDK is missing",
)


async def run(*command: str, cwd: Path, seconds: float) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        async with asyncio.timeout(seconds):
            out, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


def write_stores(authority: Authority, folder: Path) -> None:
    own, protection = authority.issue("E1"), BestAvailableEncryption(PASSWORD)
    chain = [authority.integrated.certificate]
    key_store = pkcs12.serialize_key_and_certificates(
        b"own", own.key, own.certificate, chain, protection
    )
    (folder / "own.p12").write_bytes(key_store)
    root = pkcs12.PKCS12Certificate(authority.root.certificate, b"root")
    (folder / "trust.p12").write_bytes(pkcs12.serialize_java_truststore([root], protection))


@pytest.mark.timeout(400)
async def test_a_transacted_session_of_qpid_jms(tmp_path: Path) -> None:
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    if not any(LIBRARIES.glob("qpid-jms-client-*.jar")):
        code, said = await run(
            "mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={LIBRARIES}",
            cwd=HERE / "jms", seconds=240,
        )  # fmt: skip
        if code:
            pytest.skip(f"Maven could not fetch Qpid JMS: {said[-300:]}")
    path = f"{LIBRARIES}/*:{tmp_path}"
    source = str(HERE / "jms" / "TransactedSession.java")
    compiler = ("javac", "-cp", path, "-d", str(tmp_path), source)
    code, said = await run(*compiler, cwd=tmp_path, seconds=60)
    assert code == 0, said

    authority, broker = Authority(), MemoryBroker()
    write_stores(authority, tmp_path)
    server = AmqpServer(container="B1", clock=Clock(), limits=AmqpLimits(close_seconds=1))
    own = authority.credentials("B1")
    port = await server.listen("127.0.0.1", 0, broker, tls=lambda: own)
    java = ("java", "-cp", path, "TransactedSession", str(port), str(tmp_path), "E1")
    code, said = await run(*java, cwd=tmp_path, seconds=60)
    await server.close()
    assert code == 0, said
    committed = [f"committed {n}" for n in range(3)]
    assert said.splitlines() == [
        *(f"first {text}" for text in committed),
        *(f"second {text}" for text in committed),
        "left nothing",
        "closed",
    ]
