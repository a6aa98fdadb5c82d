"""Two networks, one endpoint: that of 503 where it accepts a message, otherwise the old one."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gridpost.core.delivery import Side
from gridpost.core.identifiers import ComponentCode
from gridpost.core.message_path import OLD_NETWORK
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.endpoint.explaining import Explaining
from gridpost.services.endpoint.ways import Way
from support.builders import path
from support.post import BY_B1, START, TestEndpoint, World


class Old:
    """services.endpoint.ways.SecondNetwork, that knows E2 and O1."""

    def __init__(self, endpoint: TestEndpoint, verifying: str = "") -> None:
        self._endpoint = endpoint
        self._verifying = verifying
        self.asked: list[str] = []

    async def way(self, recipient: ComponentCode, business_type: str) -> Way:
        self.asked.append(recipient)
        if recipient not in ("E2", "O1"):
            raise Refusal(Rule.RECIPIENT_UNKNOWN, f"node N2 knows no endpoint {recipient}")
        signer = self._endpoint.context.signer
        detail = "network MADES 1.1, node N2"
        return Way(OLD_NETWORK, 1, signer, detail, verifying=self._verifying)

    def name(self, code: str) -> str:
        return ""


def world() -> World:
    """E2 takes A* by 503 and nothing else; E3 as well, and no old network knows it."""
    paths = path("A*", start=START - timedelta(days=1))
    return World(paths, codes=("E1", "E2", "E3"))


async def test_the_network_of_503_is_used_where_it_accepts() -> None:
    one = world()["E1"]
    old = one.submission.ways.second = Old(one)
    sent = await one.send("E2", b"x", "A01")
    entry = await one.enquiry.entry(Side.SENT, sent)
    assert entry.route == BY_B1
    assert entry.metadata.message_mversion == 2
    assert old.asked == []
    first = (await one.enquiry.trace(Side.SENT, sent))[0]
    assert first.detail == "network IEC 62325-503, INDIRECT:B1"


async def test_what_503_does_not_accept_takes_the_old_network_and_says_why() -> None:
    one = world()["E1"]
    one.submission.ways.second = Old(one)
    sent = await one.send("E2", b"x", "Z01")
    entry = await one.enquiry.entry(Side.SENT, sent)
    assert entry.route == OLD_NETWORK
    assert entry.metadata.message_mversion == 1
    first = (await one.enquiry.trace(Side.SENT, sent))[0]
    assert first.detail.startswith("network MADES 1.1, node N2, because E2 has no message-path")
    explained = await Explaining(one.context, one.enquiry, tuple).explain(Side.SENT, sent)
    assert explained.steps[0].name == "network"
    assert explained.steps[0].text.startswith("MADES 1.1, node N2, because E2 has no message-path")
    # Nobody has to say why a recipient without 503 does not take it.
    alone = await one.send("O1", b"x", "A01")
    assert (await one.enquiry.trace(Side.SENT, alone))[0].detail == "network MADES 1.1, node N2"


async def test_what_neither_network_takes_is_refused_with_the_reason_that_helps() -> None:
    one = world()["E1"]
    one.submission.ways.second = Old(one)
    with pytest.raises(Refusal) as refused:
        await one.send("E3", b"x", "Z01")
    assert refused.value.rule is Rule.NO_PATH_MATCHES
    with pytest.raises(Refusal) as refused:
        await one.send("NOBODY", b"x", "A01")
    assert refused.value.message == "node N2 knows no endpoint NOBODY"


async def test_a_message_waits_in_verifying_and_without_its_network_is_not_lost() -> None:
    here = world()
    one = here["E1"]
    one.submission.ways.second = Old(one, verifying="waits for node N1")
    sent = await one.send("O1", b"x", "A01")
    entry = await one.enquiry.entry(Side.SENT, sent)
    assert entry.delivery.state == "VERIFYING"
    assert entry.delivery.status == "ACCEPTED"
    await here.carry()
    last = (await one.enquiry.trace(Side.SENT, sent))[-1]
    assert last.event == "TRANSFER_FAILED"
    assert "no longer configured" in last.detail


@pytest.mark.req("m11-3.11.3-b", component="endpoint")
async def test_a_message_that_waits_in_verifying_expires() -> None:
    here = world()
    one = here["E1"]
    one.submission.ways.second = Old(one, verifying="waits for node N1")
    sent = await one.send("O1", b"x", "A01")
    entry = await one.enquiry.entry(Side.SENT, sent)
    here.clock.advance(entry.delivery.expires_at - here.clock.now())
    await here.expire()
    assert (await one.enquiry.entry(Side.SENT, sent)).delivery.state == "FAILED"
