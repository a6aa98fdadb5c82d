"""Whatever comes over the wire to a directory that runs: a proper answer or none, and nothing changes.

The requests are bytes of our own making (support.http_fuzz) over real TLS, with the certificate of a
registered component and with an installation certificate: generators of requests that want an
OpenAPI description cannot make a GET with an XML body, nor break the framing.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from gridpost.core.component import Component
from gridpost.wire.directory import (
    Query,
    decode_components,
    decode_error,
    encode_component,
    encode_query,
    encode_request,
)
from support.component_directory import request_for
from support.directory_process import DirectoryProcess, Party, TestRoot, running
from support.http_fuzz import Case, RequestFuzz, Template
from support.soak import Soak

CD = "component-directory"


def answer(port: int, context: ssl.SSLContext, case: Case) -> tuple[int, bytes] | None:
    """Status and body; None where the connection ends, or stays silent, without an answer."""
    raw = socket.create_connection(("127.0.0.1", port))
    raw.settimeout(60 if case.complete else 0.3)
    failures = (ConnectionError, TimeoutError, ssl.SSLError, http.client.HTTPException)
    with suppress(*failures), context.wrap_socket(raw) as connection:
        with suppress(ConnectionError, ssl.SSLError):
            # It may answer and close before it has read everything.
            for piece in case.pieces:
                connection.sendall(piece)
        response = http.client.HTTPResponse(connection, method=case.method)
        response.begin()
        return response.status, response.read()
    raw.close()
    return None


def resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    raise LookupError("VmRSS")


@pytest.mark.req("503-7.5-c", component=CD)
@pytest.mark.timeout(3600)
def test_hostile_requests_over_the_wire_get_an_answer_and_change_nothing(
    tmp_path: Path, soak: Soak
) -> None:
    one = DirectoryProcess(tmp_path / "cd-1", "CD-1", TestRoot(tmp_path / "ca"))
    with running(one):
        _, party = one.register("E1")
        one.register("E2")
        body = encode_query(Query())

        def others(who: Party) -> list[Component]:
            """What E1 has no business to change."""
            found = decode_components(one.request(who, "GET", "/api/v1/components", body).content)
            return [c for c in found.answer.components if c.code != "E1"]

        received = one.request(party, "GET", "/api/v1/components", body)
        entries = {c.code: c for c in decode_components(received.content).answer.components}
        fuzz = RequestFuzz(
            [
                Template("GET", "/api/v1/components", body),
                Template("PUT", "/api/v1/endpoints/E1", encode_component(entries["E1"])),
                Template("PUT", "/api/v1/endpoints/E2", encode_component(entries["E2"])),
                Template("POST", "/api/v1/registrations", encode_request(request_for("E9")[0])),
                Template("GET", "/api/v1/registrations/1", b""),
            ],
            soak.seed,
        )
        contexts = [party.context, one.invite("E8").context]
        before = others(party)
        pid = one.process.pid if one.process else 0
        statuses: dict[int, int] = {}
        size = soak.scale(3_000)
        for number in range(size):
            case = fuzz.case()
            got = answer(one.port, contexts[number % 2], case)
            if got is None:
                assert not case.complete, case
                statuses[0] = statuses.get(0, 0) + 1
                continue
            status, content = got
            statuses[status] = statuses.get(status, 0) + 1
            assert status < 500, case
            assert b"Traceback" not in content
            if status >= 400 and case.method != "HEAD":
                assert decode_error(content).id, case
        assert one.process is not None
        assert one.process.poll() is None
        assert others(party) == before
        assert {r["code"] for r in one.administer("GET", "/registrations")["registrations"]} <= {
            "E1",
            "E2",
            "E8",
        }
        assert one.administer("GET", "/components/E1")["code"] == "E1"
        peak = resident(pid)
        assert peak < 300
        # Some of them got through to the end: the rest was refused on its merits.
        assert statuses.get(200, 0) > 0
        assert size < 1_000 or {400, 403, 404, 405, 415, 422} <= statuses.keys()
    soak.report(
        requests=size,
        answered=size - statuses.get(0, 0),
        internal_errors=0,
        statuses=" ".join(f"{s}:{n}" for s, n in sorted(statuses.items())),
        resident_mib=peak,
    )
