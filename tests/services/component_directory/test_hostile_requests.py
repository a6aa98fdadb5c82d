"""Whatever is sent to the API: a proper answer, never an internal error, and nothing changes.

Requests are made by hypothesis, from the API's own grammar and from noise, in place of a generator
that wants an OpenAPI description, which an XML API with a GET body does not have.
"""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from gridpost.core.component import Component
from gridpost.wire.directory import (
    Query,
    decode_error,
    encode_component,
    encode_query,
    encode_request,
)
from support.component_directory import TestDirectory, request_for
from support.pki import TestComponent

METHODS = ["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"]
NAMES = ["registrations", "endpoints", "brokers", "components", "nodes", "", "..", "%2e%2e"]
CODES = ["E1", "E2", "B1", "CD-1", "..", "%2e%2e%2f", "E1%00", "*", "E1/", "é", "a" * 3000]
MEDIA = ["application/xml", "text/xml", "application/json", "", "application/xml;charset=x"]
TEXTS = st.sampled_from(
    [
        "",
        " ",
        "DIRECT",
        "INDIRECT:",
        "*",
        "A*C",
        "2026-01-01T00:00:00Z",
        "-1",
        "ENDPOINT",
        "\u0000x",
    ]
) | st.text(max_size=30)


class Rig:
    """One directory for all examples: no example may change it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.directory: TestDirectory = self.loop.run_until_complete(TestDirectory().started())
        self.endpoint: TestComponent = self.loop.run_until_complete(self.directory.register("E1"))
        self.entry: Component = self.loop.run_until_complete(self.directory.entry("E1"))
        kit = self.loop.run_until_complete(self.directory.invited("E2"))
        self.chains = [
            self.endpoint.chain,
            [kit.certificate, kit.issuer],
            self.directory.own.chain,
            [],
            [self.endpoint.signing.der, self.endpoint.issuer],
        ]
        self.bodies = [
            encode_component(self.entry),
            encode_query(Query()),
            encode_request(request_for("E2")[0]),
        ]
        self.before = self.loop.run_until_complete(self.directory.state())


_rigs: list[Rig] = []


def rig() -> Rig:
    if not _rigs:
        _rigs.append(Rig())
    return _rigs[0]


def send(method: str, path: str, body: bytes | None, media: str, who: int) -> None:
    one = rig()
    response = one.loop.run_until_complete(
        one.directory.request(method, path, body, chain=one.chains[who], media_type=media)
    )
    assert response.status_code < 500
    if response.status_code >= 400 and method != "HEAD":
        error = decode_error(response.content)
        assert error.id
        assert "Traceback" not in response.text
        after = one.loop.run_until_complete(one.directory.state())
        assert after == one.before


@settings(max_examples=150)
@given(
    method=st.sampled_from(METHODS),
    name=st.sampled_from(NAMES),
    code=st.sampled_from(CODES) | st.none(),
    body=st.binary(max_size=200) | st.none(),
    media=st.sampled_from(MEDIA),
    who=st.integers(0, 4),
)
def test_noise_is_refused(
    method: str, name: str, code: str | None, body: bytes | None, media: str, who: int
) -> None:
    path = f"/api/v1/{name}" + ("" if code is None else f"/{code}")
    send(method, path, body, media, who)


@settings(max_examples=150)
@given(data=st.data())
def test_documents_with_one_thing_wrong_are_refused_or_mean_no_harm(data: st.DataObject) -> None:
    one = rig()
    source = data.draw(st.sampled_from(range(3)))
    tree = etree.fromstring(one.bodies[source])
    elements = list(tree.iter())
    victim = elements[data.draw(st.integers(0, len(elements) - 1))]
    action = data.draw(st.sampled_from(["text", "drop", "double", "rename", "attribute"]))
    parent = victim.getparent()
    try:
        if action == "text":
            victim.text = data.draw(TEXTS)
        elif action == "drop" and parent is not None:
            parent.remove(victim)
        elif action == "double" and parent is not None:
            parent.append(etree.fromstring(etree.tostring(victim)))
        elif action == "rename":
            victim.tag = "other"
        else:
            victim.set("extra", data.draw(TEXTS))
    except ValueError:
        return  # lxml cannot even write it
    path, method = [
        ("/api/v1/brokers/E1", "PUT"),  # never the right resource: success would be a change
        ("/api/v1/components", "GET"),
        ("/api/v1/registrations", "POST"),
    ][source]
    # With the endpoint's certificate a registration of E2 is refused whatever it says.
    send(method, path, etree.tostring(tree), "application/xml", 0)
