"""The web services of a bus, used by zeep, node-soap and JAX-WS through the WSDL as it is served."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import zeep

from interop.test_soap_clients import JARS, LIBRARIES
from support.bus_web import WebBus, web_bus

HERE = Path(__file__).parent
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(rabbitmq, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WebBus]:
    async with web_bus(rabbitmq, tmp_path_factory.mktemp("bus")) as found:
        yield found


def header(verb: str, **more: str) -> dict[str, str]:
    return {"Verb": verb, "Noun": "Notes", "Context": "TESTING", "Source": "ZEEP", **more}


def with_zeep(base: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    generic = zeep.Client(f"{base}/soap?wsdl")
    got = generic.service.Request(Header=header("get"), Request={"ID": ["a", "b"]})
    told["generic"] = (got.Header.Verb, got.Reply.Result, len(got.Payload._value_1))
    failed = generic.service.Request(Header=header("get"), Request={"ID": ["nothing"]})
    told["failed"] = (failed.Reply.Result, failed.Reply.Error[0].code)
    typed = zeep.Client(f"{base}/typed/Notes/Request?wsdl")
    made = typed.service.CreateNotes(
        Header=header("create"), Payload={"Notes": {"Note": [{"text": "from zeep"}]}}
    )
    told["typed"] = (made.Header.Verb, made.Reply.Result)
    wanted = zeep.Client(f"{base}/typed/Notes/Get?wsdl")
    found = wanted.service.GetNotes(Header=header("get"), Request={"ID": ["a", "b"]})
    told["get"] = [note.mRID for note in found.Payload.Notes.Note]
    sent = zeep.Client(f"{base}/typed/Notes/Send?wsdl").service.ChangedNotes(
        Header=header("changed"), Payload={"Notes": {"Note": [{"text": "news"}]}}
    )
    told["event"] = sent.Reply.Result
    try:
        typed.service.CreateNotes(Header=header("delete"), Payload={"Notes": {"Note": []}})
    except zeep.exceptions.Fault as fault:
        (detail,) = fault.detail
        told["fault"] = detail.tag.rpartition("}")[2]
    return told


@pytest.mark.req("100-6.13-b", component="wsdl")
async def test_zeep(site: WebBus) -> None:
    assert await asyncio.to_thread(with_zeep, site.url) == {
        "generic": ("reply", "OK", 1),
        "failed": ("FAILED", "OBJECT_UNKNOWN"),
        "typed": ("reply", "OK"),
        "get": ["a", "b"],
        "event": "OK",
        "fault": "NotesFaultMessage",
    }


async def run(*command: str, cwd: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(200):
        out, err = await process.communicate()
    assert process.returncode == 0, f"{command[0]}: {err.decode()[-3000:]} {out.decode()[-2000:]}"
    return out.decode()


@pytest.mark.skipif(shutil.which("node") is None, reason="node is missing")
@pytest.mark.skipif(not (HERE / "node_modules").exists(), reason="run npm ci in tests/interop")
@pytest.mark.req("100-6.13-b", component="wsdl")
async def test_node_soap(site: WebBus) -> None:
    said = await run("node", str(HERE / "bus_client.js"), site.url, cwd=HERE)
    assert json.loads(said.splitlines()[-1]) == {
        "generic": "reply OK 2",
        "failed": "FAILED OBJECT_UNKNOWN",
        "typed": "reply OK",
        "fault": "FAILED",
    }


@pytest.mark.req("100-6.13-b", component="wsdl")
async def test_jax_ws(site: WebBus, tmp_path: Path) -> None:
    if any(shutil.which(tool) is None for tool in ("wsimport", "javac", "java")):
        pytest.skip("a JDK or wsimport (Debian: jaxws) is missing")
    for place in ("/soap", "/typed/Notes/Request"):
        served = f"{site.url}{place}?wsdl"
        await run(
            "wsimport", "-quiet", "-Xnocompile", "-extension", "-s", str(tmp_path), served,
            cwd=tmp_path,
        )  # fmt: skip
    path = ":".join([str(tmp_path), *(str(JARS / f"{name}.jar") for name in LIBRARIES)])
    sources = [str(file) for file in tmp_path.rglob("*.java")]  # noqa: ASYNC240
    sources.append(str(HERE / "jaxws" / "BusClient.java"))
    await run("javac", "-nowarn", "-cp", path, "-d", str(tmp_path), *sources, cwd=tmp_path)
    said = await run("java", "-cp", path, "BusClient", site.url, cwd=tmp_path)
    assert said.splitlines() == [
        "OK 2",
        "FAILED OBJECT_UNKNOWN",
        "reply OK",
        "reply OK",
        "fault FAILED",
    ]
