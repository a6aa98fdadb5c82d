"""503 cl. 7.4, 7.5: how an endpoint or broker connects to a component-directory, and what it sends."""

from dataclasses import replace

import pytest
from lxml import etree

from gridpost.core.component import ComponentType
from gridpost.core.refusal import Refusal, Rule
from gridpost.transports.https import ClientTls, HttpsClient
from support.directory_client import Machine, both
from support.fake_directory import FakeDirectory
from support.https import credentials, live_pki


@both("503-7.4-a")
async def test_a_directory_is_talked_to_over_https_and_nothing_else(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        seen = len(directory.seen)
        plain = directory.entry.urls[0].replace("https://", "http://")
        home = client.copy.home
        assert home is not None
        client.copy._home = replace(home, urls=(plain,))
        with pytest.raises(Refusal, match="no https URL"):
            await client.synchroniser.round()
        assert len(directory.seen) == seen


@both("503-7.4-b")
async def test_each_side_leaves_a_peer_that_it_does_not_trust(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    stranger = live_pki("CD-1", "ANOTHER-ROOT")
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        seen, port = len(directory.seen), directory.port
        # A component with a certificate of another root gets no answer.
        shown = credentials(stranger.component(machine.code), directory.pki.root)
        client.synchroniser._caller = HttpsClient(ClientTls(lambda: shown))
        with pytest.raises(Refusal):
            await client.synchroniser.round()
        assert len(directory.seen) == seen
    # A server with the right name and a certificate of another root gets no request.
    impostor = FakeDirectory(root="ANOTHER-ROOT")
    impostor.tls = replace(impostor.tls, roots=(directory.pki.root,))
    client = await machine.start()
    async with impostor.running(port):
        with pytest.raises(Refusal) as caught:
            await client.synchroniser.round()
    assert caught.value.rule is Rule.CHAIN_NOT_TRUSTED
    assert impostor.seen == []


@both("503-7.5-b")
async def test_every_body_is_xml(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        await client.configuration.change(machine.component(), by="administrator")
        await client.configuration.push()
    assert {seen.method for seen in directory.seen} == {"GET", "PUT", "POST"}
    for seen in directory.seen:
        assert seen.media_type == "application/xml"
        etree.fromstring(seen.body)
