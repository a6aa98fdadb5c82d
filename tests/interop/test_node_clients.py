"""A node as a process: every operation from zeep and node-soap, wsimport, and kill -9 in transfers."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import zeep
from requests.adapters import HTTPAdapter
from zeep.transports import Transport

from gridpost.core.certificate import CertificateKind
from gridpost.core.message import Metadata
from gridpost.core.refusal import Refusal
from gridpost.wire.mades11.services import NODE_INTERFACES
from support.directory_process import Party, TestRoot
from support.node_process import NodeProcess
from support.old_network import OldEndpoint

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    root = TestRoot(tmp_path_factory.mktemp("root"))
    node = NodeProcess(tmp_path_factory.mktemp("node"), "N1", root)
    node.start()
    yield node
    node.kill(15)


class _Anyone(HTTPAdapter):
    """Certificates of components name codes, not hosts."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs, assert_hostname=False)


def _as_element(metadata: Metadata, content: bytes) -> dict[str, Any]:
    """How toolkits see an InternalMessage."""
    assert metadata.expiration_time is not None
    return {
        "messageID": metadata.message_id,
        "receiverCode": metadata.receiver_code,
        "businessType": metadata.message_type,
        "content": content,
        "generated": metadata.generated.text,
        "expirationTime": metadata.expiration_time.milliseconds,
        "senderCode": metadata.sender_code,
        "senderDescription": metadata.sender_description,
        "internalType": metadata.internal_type.value,
        "metadata": {
            "messageProcessors": [
                {
                    "processorID": p.processor_id,
                    "processorData": {
                        "entries": [
                            {"key": e.key, "type": e.type.value, "value": e.value}
                            for e in p.entries
                        ]
                    },
                }
                for p in metadata.processors
            ]
        },
        "messageMversion": 1,
    }


def _files(endpoint: OldEndpoint, folder: Path) -> tuple[Path, Path, Path]:
    shown = endpoint.credentials()
    folder.mkdir(exist_ok=True)
    return Party(shown.chain, shown.private_key, shown.roots).files(folder)


@pytest.mark.req("m11-5.6.1-a", component="node")
@pytest.mark.req("m11-5.6.3.1-b", component="node")
@pytest.mark.req("m11-5.6.3.2-e", component="node")
@pytest.mark.req("m11-5.6.3.3-b", component="node")
@pytest.mark.req("m11-5.6.3.4-c", component="node")
@pytest.mark.parametrize("version", ["11", "12"])
@pytest.mark.req("m11-5.6.3.4-b", component="node")
def test_zeep_uses_every_operation(node: NodeProcess, tmp_path: Path, version: str) -> None:
    one = node.new_endpoint(f"Z{version}")
    chain, key, roots = _files(one, tmp_path)
    session = requests.Session()
    session.trust_env = False
    session.mount("https://", _Anyone())
    session.cert, session.verify = (str(chain), str(key)), str(roots)
    transport = Transport(session=session)

    def service(name: str) -> Any:
        client = zeep.Client(f"{node.url}/{name}?wsdl", transport=transport)
        found = next(iter(client.wsdl.services.values()))
        return client.bind(found.name, f"{name}SOAP{version}")

    token = service("MadesAuthenticationService").GetAuthenticationToken(one.code)
    signer = one.token_signer
    last = {
        "authToken": {
            "token": token.authToken,
            "signature": signer.sign(token.authToken),
            "certificateID": signer.certificate_id,
        },
        "serviceMversion": 1,
    }
    me = {"signature": signer.sign(one.code), "certificateID": signer.certificate_id}
    directory = service("MadesDirectoryService")
    accepted = directory.SetComponentMversion(
        componentCode=one.code, **me, componentMVersion=1, **last
    )
    assert (accepted.nodeMversion, accepted.acceptance) == (1, True)
    messaging = service("MadesInternalMessaging")
    metadata, content = asyncio.run(one.message(one, b"\0\xff" * 5000))
    answer = messaging.UploadMessages(messages=[_as_element(metadata, content)], **last)
    assert answer.uploadedMessages == [metadata.message_id]
    down = messaging.DownloadMessages(endpoints=[{"code": one.code, **me}], **last)
    assert [(m.messageID, m.content) for m in down.messages] == [(metadata.message_id, content)]
    assert down.waitingMessages == 0
    messaging.ConfirmDownload(messageIDs=[metadata.message_id], **last)
    found = directory.GetComponent(componentCode="N1", **last)
    assert (found.code, found.type) == ("N1", "NODE")
    kind = CertificateKind.ENCRYPTION
    shown = directory.GetCertificate(componentCode=one.code, type="ENCRYPTION", **last)
    assert shown.certificate == one.certificates[kind].der
    with pytest.raises(zeep.exceptions.Fault):
        directory.GetCertificate(componentCode=one.code, type="SIGNING", **last)
    nodes = service("MadesNodeSynchronizationService")
    told = nodes.GetNodeMversion(mversion=1)
    assert (told.mversion, told.nodeCode) == (1, "N1")
    data = nodes.GetAllDirectoryData(serviceMversion=1)
    assert {"N1", one.code} <= {c.information.code for c in data.components}
    again = nodes.GetAllDirectoryData(dversion=data.dversion, serviceMversion=1)
    assert (again.dversion, again.components) == (data.dversion, [])


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_node_soap_uses_every_operation(node: NodeProcess, tmp_path: Path, version: str) -> None:
    if shutil.which("node") is None or not (HERE / "node_modules").exists():
        pytest.skip("node or its packages are missing")
    one = node.new_endpoint(f"J{version.replace('.', '')}")
    chain, key, roots = _files(one, tmp_path)
    metadata, content = asyncio.run(one.message(one, b"\0\xff" * 500))
    element = _as_element(metadata, content) | {"content": base64.b64encode(content).decode()}
    task = {
        "url": node.url, "code": one.code, "peer": one.code, "version": version,
        "chain": str(chain), "key": str(key), "roots": str(roots),
        "authId": one.token_signer.certificate_id, "message": element,
    }  # fmt: skip
    done = subprocess.run(
        ["node", str(HERE / "node_client.js"), json.dumps(task)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["future"] is True
    assert told["accepted"] == [1, True]
    assert metadata.message_id in told["uploaded"]
    assert told["same"] is True
    assert told["waiting"] == 0
    assert told["component"] == [one.code, "ENDPOINT", "N1"]
    assert told["certificate"] == one.certificate_id(CertificateKind.ENCRYPTION)
    assert told["node"] == [1, "N1"]
    assert {"N1", one.code} <= set(told["components"])
    assert told["fault"] == "INVALID_PARAMETERS"


def test_wsimport_reads_the_descriptions_unchanged(tmp_path: Path) -> None:
    if shutil.which("wsimport") is None:
        pytest.skip("wsimport (Debian: jaxws) is missing")
    for name in (*NODE_INTERFACES, "MadesEndpoint"):
        file = Path(__file__).parents[2] / f"src/gridpost/wire/schemas/mades11/{name}.wsdl"
        done = subprocess.run(
            ["wsimport", "-quiet", "-Xnocompile", "-extension", "-s", str(tmp_path), "-p",
             f"gridpost.{name.lower()}", str(file)],
            capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert list((tmp_path / "gridpost" / name.lower()).glob(f"{name}*.java"))


@pytest.mark.req("m11-3.6-a", component="node")
@pytest.mark.req("m11-3.8-b", component="node")
async def test_killed_in_the_middle_nothing_is_lost_or_doubled(node: NodeProcess) -> None:
    one, two = node.new_endpoint("K1"), node.new_endpoint("K2")
    sending, receiving = one.session(), two.session()
    pending = [await one.message(two, b"%d" % number) for number in range(30)]
    sent = {metadata.message_id: content for metadata, content in pending}
    received: dict[str, bytes] = {}
    confirmed: list[str] = []
    for kills in range(3):
        # A transfer is under way when the process goes.
        work = [asyncio.create_task(sending.upload(pending[:10]))]
        if kills:
            work.append(asyncio.create_task(receiving.download()))
        await asyncio.sleep(0.05 * kills)
        await asyncio.to_thread(node.kill)
        for task in work:
            with contextlib.suppress(Refusal):
                await task
        await asyncio.to_thread(node.start)
        for session in (sending, receiving):
            session._token = None
        # What had no answer is transferred again; what came twice is confirmed and stored once.
        answer = await sending.upload(pending[:10])
        assert not answer.refused
        pending = [m for m in pending if m[0].message_id not in answer.uploaded]
        messages, _ = await receiving.download()
        ids = [metadata.message_id for metadata, _ in messages]
        await receiving.confirm(ids)
        confirmed += ids
        received |= {metadata.message_id: content for metadata, content in messages}
    assert (pending, await receiving.download()) == ([], ([], 0))
    assert sorted(confirmed) == sorted(sent)
    assert received == sent
    states = {m["message_id"]: m["state"] for m in node.tell("messages")}
    assert {states[message_id] for message_id in sent} == {"DELIVERED"}


@pytest.mark.req("m11-2.10.2-a", component="node")
def test_nothing_without_tls_and_a_certificate(node: NodeProcess) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.mount("https://", _Anyone())
        session.verify = str(node.root.file)
        with pytest.raises(requests.exceptions.ConnectionError):
            session.get(node.url.replace("https", "http") + "/MadesDirectoryService?wsdl")
        with pytest.raises(requests.exceptions.ConnectionError) as refused:
            session.get(node.url + "/MadesDirectoryService?wsdl")
    # The server was trusted; it is the client that was not let in.
    assert "CERTIFICATE_VERIFY_FAILED" not in str(refused.value)
