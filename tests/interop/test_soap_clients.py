"""The SOAP channel of two endpoint processes, used by zeep, node-soap and JAX-WS through the served WSDL."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from base64 import b64decode
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import httpx
import pytest
import pytest_asyncio
from lxml import etree

from gridpost.services.endpoint.soap_api import PATH
from support.network import API_PASSWORD, Network, network, until_status
from support.soap import envelope, field, request, send_request

HERE = Path(__file__).parent
JARS = Path("/usr/share/java")
# What Debian's jaxws-rt needs on a JDK that has no web services of its own.
LIBRARIES = [
    *("jaxws-api", "jaxws-rt", "jaxb-api", "jaxb-core", "jaxb-runtime", "jws-api", "saaj-impl"),
    *("javax.activation", "stax-ex", "streambuffer", "metro-policy", "gmbal", "txw2", "mimepull"),
    *("istack-commons-runtime", "geronimo-annotation-1.3-spec"),
]

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def net(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    async with network(tmp_path_factory.mktemp("network")) as found:
        # Without a broker: this file is about the doors of an endpoint.
        await found.endpoint("E1", "DIRECT", direct=True)
        await found.endpoint("E2", "DIRECT", direct=True)
        await found.start("E1", "E2")
        await found.known("E1", "E2")
        await found.known("E2", "E1")
        yield found


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("document") / "document.bin"
    file.write_bytes(os.urandom(300_001))
    return file


async def run(*command: str, cwd: Path = HERE, seconds: float = 120) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    except TimeoutError:
        process.kill()
        out, err = await process.communicate()
    assert process.returncode == 0, f"{command[0]}: {err.decode()[-3000:]} {out.decode()[-1000:]}"
    return out.decode()


def url(net: Network, code: str) -> str:
    return f"http://127.0.0.1:{net.ports[code]}{PATH}"


async def drive(
    net: Network, document: Path, version: str, name: str, *command: str, wsdl: Path | None = None
) -> None:
    message_type = f"{name}-{version.replace('.', '')}"
    urls = (url(net, "E1"), url(net, "E2"))
    arguments = (*urls, version, "app", API_PASSWORD, message_type, str(document))
    said = await run(*command, *arguments, *([] if wsdl is None else [str(wsdl)]))
    told = json.loads(said.splitlines()[-1])
    # An endpoint answers with an attachment only if it was asked with MTOM.
    assert told.pop("attachments", "0") == ("1" if version.endswith("mtom") else "0")
    assert told.pop("again") == told["sent"]
    assert told.pop("confirmed") == told.pop("sent")
    assert told == {
        "received before": None,
        "waiting": "1",
        "bare": "0",
        "remaining": "0",
        "same": "true",
        "application": "App7",
        "ba": "4711",
        "from": "E1",
        "left": "nothing",
        "trace": "ACCEPTED@E1 DELIVERED@E2 RECEIVED@E2",
        "received after": "true",
        "SendMessage": "VALIDATION_ERROR NOBODY",
        "ConnectivityTest": "VALIDATION_ERROR NOBODY",
        "ReceiveMessage": "INVALID_PARAMETERS A_1",
        "ConfirmReceiveMessage": "INVALID_PARAMETERS nothing",
        "CheckMessageStatus": "INVALID_PARAMETERS nothing",
    }


@pytest.mark.req("503-11.1.7-a")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_zeep(net: Network, document: Path, version: str) -> None:
    await drive(net, document, version, "ZEEP", sys.executable, str(HERE / "soap_client.py"))


@pytest.mark.req("503-9.2-i")
async def test_an_application_that_was_built_for_the_first_release(
    net: Network, document: Path
) -> None:
    # As the web service was described when it was first released; the file never changes.
    first = HERE / "application_v2/MadesEndpointV2.wsdl"
    client = (sys.executable, str(HERE / "soap_client.py"))
    await drive(net, document, "1.2", "FIRST", *client, wsdl=first)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is missing")
@pytest.mark.skipif(not (HERE / "node_modules").exists(), reason="run npm ci in tests/interop")
@pytest.mark.req("503-11.1.7-a")
@pytest.mark.parametrize("version", ["1.1", "1.2"])
async def test_node_soap(net: Network, document: Path, version: str) -> None:
    await drive(net, document, version, "NODE", "node", str(HERE / "soap_client.js"))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def java(net: Network, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The class path of a client that wsimport generated from the WSDL as it is served."""
    if any(shutil.which(tool) is None for tool in ("wsimport", "javac", "java")):
        pytest.skip("a JDK or wsimport (Debian: jaxws) is missing")
    folder = tmp_path_factory.mktemp("jaxws")
    served = url(net, "E1") + "?wsdl"
    await run(
        "wsimport", "-quiet", "-Xnocompile", "-extension", "-s", str(folder), served, cwd=folder
    )
    path = ":".join([str(folder), *(str(JARS / f"{name}.jar") for name in LIBRARIES)])
    sources = [str(file) for file in folder.rglob("*.java")]
    sources.append(str(HERE / "jaxws" / "Application.java"))
    await run("javac", "-nowarn", "-cp", path, "-d", str(folder), *sources, cwd=folder)
    return path


@pytest.mark.req("503-11.1.7-a")
@pytest.mark.parametrize("version", ["1.1", "1.2", "1.1-mtom", "1.2-mtom"])
async def test_jax_ws(net: Network, document: Path, java: str, version: str) -> None:
    await drive(net, document, version, "JAXWS", "java", "-cp", java, "Application")


async def post(net: Network, code: str, body: str) -> etree._Element:
    headers = {"content-type": "text/xml"}
    async with httpx.AsyncClient(auth=("app", API_PASSWORD), timeout=60) as client:
        answer = await client.post(
            url(net, code), content=envelope("1.1", body).encode(), headers=headers
        )
    assert answer.status_code == 200, answer.text
    found = etree.fromstring(answer.content).find("{*}Body/*")
    assert found is not None
    return found


@pytest.mark.req("503-T30-a")
@pytest.mark.req("503-11.1.2-a")
@pytest.mark.req("503-11.1.3-a")
async def test_what_was_answered_survives_the_death_of_both_endpoints(net: Network) -> None:
    body = send_request(b"precious", message_type="KILLED", conversation="App7 1")
    sent = (await post(net, "E1", body)).findtext("messageID")
    assert sent is not None
    UUID(sent)
    await net.components["E1"].kill()
    await net.components["E1"].start()
    assert (await post(net, "E1", body)).findtext("messageID") == sent
    async with net.api("E1") as api:
        await until_status(api, sent, "DELIVERED")
    receive = request("ReceiveMessage", *(field(*pair) for pair in RECEIVE.items()))
    before = await post(net, "E2", receive)
    await net.components["E2"].kill()
    await net.components["E2"].start()
    after = await post(net, "E2", receive)
    for found in (before, after):
        assert found.findtext("receivedMessage/messageID") == sent
        assert b64decode(found.findtext("receivedMessage/content") or "") == b"precious"
        assert found.findtext("remainingMessagesCount") == "0"


RECEIVE = {"messageType": "KILLED", "downloadMessage": "true"}


async def test_the_operations_page_counts_requests(net: Network) -> None:
    await post(net, "E1", send_request(message_type="COUNTED"))
    file = net.components["E1"].file.read_text()
    port = file.partition("[operations]\nport = ")[2].partition("\n")[0]
    async with httpx.AsyncClient(timeout=60) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    wanted = 'channel="soap",operation="SendMessage",outcome="answered"'
    assert f"gridpost_endpoint_requests_total{{{wanted}}}" in text
