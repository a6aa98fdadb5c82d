"""The AMQP server and the broker against Qpid JMS: transacted sessions, rolled back and redelivered."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from gridpost.core.certificate import CertificateKind
from gridpost.transports.amqp10 import AmqpLimits, AmqpServer
from support.authority import Authority, Clock
from support.broker_process import broker_network
from support.memory_broker import MemoryBroker

HERE = Path(__file__).parent
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


def write_key_store(
    file: Path, key: rsa.RSAPrivateKey, certificate: x509.Certificate, issuer: x509.Certificate
) -> None:
    protection = BestAvailableEncryption(PASSWORD)
    store = pkcs12.serialize_key_and_certificates(b"own", key, certificate, [issuer], protection)
    file.write_bytes(store)


def write_trust_store(file: Path, root: x509.Certificate) -> None:
    trusted = pkcs12.PKCS12Certificate(root, b"root")
    protection = BestAvailableEncryption(PASSWORD)
    file.write_bytes(pkcs12.serialize_java_truststore([trusted], protection))


async def compiled(folder: Path, name: str, project: str = "jms") -> tuple[str, ...]:
    """The command that runs one of the programs in `jms`, or in another folder with a pom.xml."""
    libraries = HERE.parents[1] / "var" / f"interop-{project}"
    libraries.mkdir(parents=True, exist_ok=True)
    whole = libraries / ".whole"
    if not whole.exists():
        code, said = await run(
            "mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={libraries}",
            cwd=HERE / project, seconds=240,
        )  # fmt: skip
        if code:
            pytest.skip(f"Maven could not fetch the libraries of {project}: {said[-300:]}")
        whole.touch()
    path = f"{libraries}/*:{folder}"
    source = str(HERE / project / f"{name}.java")
    code, said = await run("javac", "-cp", path, "-d", str(folder), source, cwd=folder, seconds=120)
    assert code == 0, said
    return "java", "-cp", path, name


@pytest.mark.timeout(400)
async def test_a_transacted_session_of_qpid_jms(tmp_path: Path) -> None:
    java = await compiled(tmp_path, "TransactedSession")
    authority, broker = Authority(), MemoryBroker()
    own_of_e1 = authority.issue("E1")
    write_key_store(
        tmp_path / "own.p12", own_of_e1.key, own_of_e1.certificate, authority.integrated.certificate
    )
    write_trust_store(tmp_path / "trust.p12", authority.root.certificate)
    server = AmqpServer(container="B1", clock=Clock(), limits=AmqpLimits(close_seconds=1))
    own = authority.credentials("B1")
    port = await server.listen("127.0.0.1", 0, broker, tls=lambda: own)
    code, said = await run(*java, str(port), str(tmp_path), "E1", cwd=tmp_path, seconds=60)
    await server.close()
    assert code == 0, said
    committed = [f"committed {n}" for n in range(3)]
    assert said.splitlines() == [
        *(f"first {text}" for text in committed),
        *(f"second {text}" for text in committed),
        "left nothing",
        "closed",
    ]


@pytest.mark.timeout(400)
async def test_transacted_sessions_of_qpid_jms_on_a_running_broker(tmp_path: Path) -> None:
    java = await compiled(tmp_path, "MadesTransactions")
    async with broker_network(tmp_path) as broker:
        for code, member in broker.members.items():
            der = member.certificate(CertificateKind.AUTHENTICATION).der
            write_key_store(
                tmp_path / f"{code}.p12",
                member.keys[CertificateKind.AUTHENTICATION],
                x509.load_der_x509_certificate(der),
                x509.load_der_x509_certificate(member.issuer),
            )
        root = x509.load_der_x509_certificate(broker.directory.pki.root)
        write_trust_store(tmp_path / "trust.p12", root)
        arguments = (str(broker.port), str(tmp_path), "E1", "E2")
        code, said = await run(*java, *arguments, cwd=tmp_path, seconds=120)
        assert code == 0, said
        assert said.splitlines() == [
            *(f"first committed {n}" for n in range(3)),
            *(f"second committed {n} again" for n in range(3)),
            "left nothing",
            "closed",
        ]
        assert await broker.depth("E2") == 0
