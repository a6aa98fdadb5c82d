"""An independent client, written from the document with RabbitMQ's library for Node."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from gridpost.wire.cmm import AllocationResp, AtcDataNtf, AtcDataResp, ErrorResp, LoginResp, decode
from support.capacity_market import DK1, EON
from support.capacity_site import PASSPHRASE, capacity_service, periods, rabbit

HERE = Path(__file__).parent
__all__ = ["rabbit"]

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (HERE / "node_modules/amqplib").exists(),
    reason="node or its packages are missing: run make setup",
)


@pytest.mark.req("cmm-1.1-a", component="service")
@pytest.mark.req("cmm-1.1-a", component="rabbitmq-topology")
async def test_a_participant_that_knows_only_the_document_trades(rabbit, tmp_path):
    async with capacity_service(rabbit, tmp_path) as site:
        await site.publish()
        period = periods()[12]
        url = f"{rabbit.node.url}/{site.virtual_host}"
        times = [at.strftime("%Y-%m-%dT%H:%M:%S.000Z") for at in (period.start, period.end)]
        process = await asyncio.create_subprocess_exec(
            "node", "cmm_amqplib.js", url, "u1", str(rabbit.package("u1") / "u1.p12"), PASSPHRASE,
            str(rabbit.roots), EON, DK1, *times,
            cwd=HERE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await asyncio.wait_for(process.communicate(), 90)
        assert process.returncode == 0, err.decode()
        told = json.loads(out)
        answers = {
            name: decode(told[name]["text"].encode())
            for name in ("login", "allocation", "atc", "broken")
        }
        assert all(told[n]["contentType"] == "text/xml;v=1.0" for n in answers)
        assert answers["login"] == LoginResp(True)
        [item] = answers["allocation"].items
        assert isinstance(answers["allocation"], AllocationResp)
        assert (item.client_id, item.success, item.confirmed) == ("js-1", True, 100)
        assert isinstance(answers["atc"], AtcDataResp)
        assert answers["atc"].lists[0].items[12].quantity == 900
        assert isinstance(answers["broken"], ErrorResp)
        news = [b for b in told["broadcasts"] if b["exchange"] == "cmm.atc.DE-DK"]
        assert {b["headers"]["X_Event"] for b in news} == {"ALLOCATION_PMI"}
        assert all(b["encoding"] == "gzip" for b in news)
        quantities = {decode(b["text"].encode()).lists[0].items[0].quantity for b in news}
        assert quantities == {900, 1100}
        assert isinstance(decode(news[0]["text"].encode()), AtcDataNtf)
        assert told["returned"] == []
