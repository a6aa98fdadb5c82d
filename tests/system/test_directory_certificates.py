"""Certificates that end and authorities that change, in directories that run."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.wire.directory import Query, decode_components, encode_query
from gridpost.wire.x509 import Purpose, verify_chain
from support.directory_process import DirectoryProcess, Party, TestRoot, running, wait_for

CD = "component-directory"
BODY = encode_query(Query())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> TestRoot:
    return TestRoot(tmp_path_factory.mktemp("root") / "ca")


def asks(directory: DirectoryProcess, party: Party) -> int:
    """The status of a synchronisation; 0 where not even TLS stands."""
    try:
        return directory.request(party, "GET", "/api/v1/components", BODY).status_code
    except httpx.HTTPError:
        return 0


@pytest.mark.req("503-8.3.2-e", component=CD)
def test_an_open_connection_ends_when_its_certificate_expires(
    tmp_path: Path, root: TestRoot
) -> None:
    one = DirectoryProcess(tmp_path / "cd-1", "CD-1", root)
    with running(one):
        # The directory's own certificate stays as long as it is.
        one.options = {"registration": {"certificate_validity": "20s"}}
        one.rewrite()
        component, party = one.register("E1")
        ends = component.certificates[0].not_after
        raw = socket.create_connection(("127.0.0.1", one.port))
        with party.context.wrap_socket(raw) as connection:
            connection.settimeout(60)
            connection.sendall(
                b"GET /api/v1/components HTTP/1.1\r\nHost: x\r\nContent-Type: application/xml\r\n"
                b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
            )
            assert connection.recv(12) == b"HTTP/1.1 200"
            with suppress(ConnectionError, ssl.SSLError):
                while connection.recv(65536):
                    pass
        assert datetime.now(UTC) >= ends
        assert asks(one, party) in (0, 401)

        # It was the certificate that ended it, and not that nobody said anything.
        def expired() -> bool:
            rows = one.administer("GET", "/journal")["rows"]
            return any("open connection has expired" in row.get("message", "") for row in rows)

        wait_for(expired)


@pytest.mark.req("503-8.5-h", component=CD)
def test_a_root_ca_is_renewed_with_both_chains_valid_during_the_change(
    tmp_path: Path, root: TestRoot
) -> None:
    new_root = TestRoot(tmp_path / "new-root")
    one = DirectoryProcess(tmp_path / "cd-1", "CD-1", root)
    two = DirectoryProcess(tmp_path / "cd-2", "CD-2", root)
    with running(one, two):
        _, old = one.register("E1")
        wait_for(lambda: two.codes() == {"CD-1", "CD-2", "E1"})
        # Everybody trusts both roots before anything is issued below the new one.
        for directory in (one, two):
            directory.roots.append(new_root)
            directory.rewrite()
        old = Party(old.chain, old.private_key, (root.certificate, new_root.certificate))
        # The first directory has a new INTEGRATED CA below the new root; the second not yet.
        new_root.certify(DirectoryKeys(read_directory_configuration(one.file)))
        one.rewrite()
        component, new = one.register("E2")
        verify_chain(new.chain, [new_root.certificate], datetime.now(UTC), Purpose.CLIENT)
        wait_for(lambda: two.codes() == {"CD-1", "CD-2", "E1", "E2"})
        for directory in (one, two):
            assert asks(directory, old) == 200
            assert asks(directory, new) == 200
        # The server shows a chain of the new root; whoever trusts only the old one sees nobody.
        behind = Party(old.chain, old.private_key, (root.certificate,))
        assert asks(one, behind) == 0
        assert asks(two, behind) == 200
        new_root.certify(DirectoryKeys(read_directory_configuration(two.file)))
        two.rewrite()
        one.register("E3")
        wait_for(lambda: "E3" in two.codes())
        # The end of the change: the old root is trusted no more, and with it what is below it.
        for directory in (one, two):
            directory.roots.remove(root)
            directory.rewrite()
        one.register("E4")
        wait_for(lambda: "E4" in two.codes())
        only_new = Party(new.chain, new.private_key, (new_root.certificate,))
        for directory in (one, two):
            assert asks(directory, only_new) == 200
            assert asks(directory, old) in (0, 401)
        entries = decode_components(
            one.request(only_new, "GET", "/api/v1/components", BODY).content
        ).answer.components
        assert {c.code for c in entries} == {"CD-1", "CD-2", "E1", "E2", "E3", "E4"}
        assert component.code == "E2"
