"""Component-directories as processes: real TLS, other programs as clients, kills and restarts."""

from __future__ import annotations

import json
import random
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path

import httpx
import pytest

from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.directory_keys import DirectoryKeys
from gridpost.core.certificate import CertificateKind
from gridpost.core.component import ComponentType
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.wire.directory import (
    Query,
    decode_components,
    decode_entry,
    decode_error,
    encode_component,
    encode_query,
    encode_request,
)
from gridpost.wire.x509 import Validity, issue, issue_installation
from support.component_directory import BROKER_KINDS, request_for
from support.directory_process import (
    GRIDPOST,
    DirectoryProcess,
    Party,
    TestRoot,
    environment,
    running,
    wait_for,
)
from support.pki import TestPki, rsa_key, spki
from support.postgres import PostgresDatabase, PostgresServer
from support.soak import Soak

CD = "component-directory"
SCHEMAS = Path(str(files("gridpost.wire.schemas"))) / "directory"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> TestRoot:
    return TestRoot(tmp_path_factory.mktemp("root") / "ca")


@pytest.fixture(params=["sqlite", "postgres"])
def books(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, dict[str, str]]:
    """Where a directory keeps its data, as sections of its configuration."""
    if request.param == "sqlite":
        return {}
    database: PostgresDatabase = request.getfixturevalue("postgres")
    return {"postgres": database.section(tmp_path)}


@pytest.fixture
def directory(tmp_path: Path, root: TestRoot) -> Iterator[DirectoryProcess]:
    one = DirectoryProcess(tmp_path / "cd-1", "CD-1", root)
    with running(one):
        yield one


def xmllint(document: bytes, schema: str) -> None:
    """A second validator than the one that we use ourselves."""
    done = subprocess.run(
        ["xmllint", "--noout", "--nonet", "--schema", str(SCHEMAS / schema), "-"],
        input=document,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.req("503-4.4.3-d", "503-7.1-f", "503-8.6-c")
@pytest.mark.req("503-7.1-b", component=CD)
def test_three_directories_converge_and_one_that_was_killed_catches_up(
    tmp_path: Path, root: TestRoot
) -> None:
    one, two, three = (DirectoryProcess(tmp_path / c, c, root) for c in ("CD-1", "CD-2", "CD-3"))
    with running(one, two, three):
        _, party = one.register("E1")
        one.register("E2")
        everybody = {"CD-1", "CD-2", "CD-3", "E1", "E2"}
        for directory in (one, two, three):
            wait_for(lambda d=directory: d.codes() == everybody)
        two.kill()
        one.administer("POST", "/components/E1/revoke", {"reason": "stolen"})
        assert one.codes() == everybody - {"E1"}
        wait_for(lambda: three.codes() == everybody - {"E1"})
        # A directory that is down stops nobody, and knows after its restart what it knew.
        one.register("E3")
        two.start()
        now = everybody - {"E1"} | {"E3"}
        for directory in (one, two, three):
            wait_for(lambda d=directory: d.codes() == now)
        assert one.content_ids() == two.content_ids() == three.content_ids()
        body = encode_query(Query())
        for directory in (one, two, three):
            response = directory.request(party, "GET", "/api/v1/components", body)
            assert response.status_code == 401


@pytest.mark.req("503-T25-i", component=CD)
def test_curl_synchronises_with_a_get_that_has_a_body_and_xmllint_validates_it(
    directory: DirectoryProcess, tmp_path: Path
) -> None:
    _, party = directory.register("E1")
    chain, key, roots = party.files(tmp_path)
    query = tmp_path / "query.xml"
    query.write_bytes(encode_query(Query()))
    xmllint(query.read_bytes(), "components.xsd")

    def curl(path: str, *options: str) -> tuple[int, bytes]:
        done = subprocess.run(
            [
                *("curl", "-sS", "--noproxy", "*"),
                *("--cacert", roots, "--cert", chain, "--key", key),
                # Components are known by their certificate, not by a host name.
                *("--insecure", "-w", "\n%{http_code}", *options, directory.url + path),
            ],
            capture_output=True,
            check=True,
        )
        body, _, status = done.stdout.rpartition(b"\n")
        return int(status), body

    with_body = ("-X", "GET", "-H", "Content-Type: application/xml", "--data-binary", f"@{query}")
    status, body = curl("/api/v1/components", *with_body)
    assert status == 200
    xmllint(body, "components.xsd")
    assert {c.code for c in decode_components(body).answer.components} == {"CD-1", "E1"}
    status, body = curl("/api/v1/nothing")
    assert status == 404
    xmllint(body, "error.xsd")


def test_registration_documents_are_valid_for_a_second_validator(
    directory: DirectoryProcess,
) -> None:
    party = directory.invite("E1")
    body = encode_request(request_for("E1")[0])
    xmllint(body, "registration-request.xsd")
    posted = directory.request(party, "POST", "/api/v1/registrations", body)
    xmllint(posted.content, "registration-response.xsd")
    location = posted.headers["location"]
    directory.administer("POST", f"/registrations/{location.rpartition('/')[2]}/approve")
    decided = directory.request(party, "GET", location)
    xmllint(decided.content, "registration-response.xsd")
    assert b"APPROVED" in decided.content


def test_a_revoked_component_loses_its_open_connection(directory: DirectoryProcess) -> None:
    _, party = directory.register("E1")
    raw = socket.create_connection(("127.0.0.1", directory.port))
    with party.context.wrap_socket(raw) as connection:
        connection.settimeout(60)
        body = encode_query(Query())
        connection.sendall(
            b"GET /api/v1/components HTTP/1.1\r\nHost: x\r\nContent-Type: application/xml\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body
        )
        assert connection.recv(12) == b"HTTP/1.1 200"
        directory.administer("POST", "/components/E1/revoke", {"reason": "stolen"})
        with suppress(ConnectionError, ssl.SSLError):
            while connection.recv(65536):
                pass
    again = directory.request(party, "GET", "/api/v1/components", body)
    assert again.status_code == 401


@pytest.mark.req("503-7.4-a", "503-8.4.1-b", "503-8.3.2-e", component=CD)
def test_strangers_get_no_data(directory: DirectoryProcess) -> None:
    component, party = directory.register("E1")
    keys = DirectoryKeys(read_directory_configuration(directory.file))
    issuer = keys.issuers()[0]
    now = datetime.now(UTC)
    key = rsa_key("stranger")
    roots = (directory.root.certificate,)

    def issued(code: str, validity: Validity, kind: CertificateKind) -> Party:
        leaf = issue(kind, code, spki(key), issuer, validity)
        return Party((leaf, issuer.certificate), to_pkcs8(key), roots)

    day = timedelta(days=1)
    foreign = TestPki("CD-1", root="ELSEWHERE", now=now).component("E1")
    auth = CertificateKind.AUTHENTICATION
    never_invited = issue_installation("E5", spki(key), issuer, Validity(now - day, now + day))
    strangers = {
        "expired": issued("E1", Validity(now, now + timedelta(seconds=1)), auth),
        "never published": issued("E1", Validity(now - day, now + day), auth),
        "never registered": issued("E9", Validity(now - day, now + day), auth),
        "signing": directory.party(component, CertificateKind.SIGNING),
        "another root": Party(tuple(foreign.chain), to_pkcs8(foreign.keys[auth]), roots),
        "installation, not in the books": Party(
            (never_invited, issuer.certificate), to_pkcs8(key), roots
        ),
    }
    time.sleep(1.5)  # the first one has to expire
    body = encode_query(Query())
    before = directory.content_ids()
    for what, stranger in strangers.items():
        try:
            response = directory.request(stranger, "GET", "/api/v1/components", body)
        except httpx.HTTPError:
            continue  # not even TLS
        assert response.status_code in (401, 403), what
        assert b"E1</code>" not in response.content, what
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.check_hostname = False
    anonymous.verify_mode = ssl.CERT_NONE
    with (
        pytest.raises(httpx.HTTPError),
        httpx.Client(verify=anonymous, trust_env=False, timeout=60) as client,
    ):
        client.request("GET", directory.url + "/api/v1/components", content=body)
    with pytest.raises(httpx.HTTPError):
        httpx.get(
            f"http://127.0.0.1:{directory.port}/api/v1/components", trust_env=False, timeout=60
        )
    assert directory.content_ids() == before
    assert directory.request(party, "GET", "/api/v1/components", body).status_code == 200

    def told() -> set[str]:
        rows = directory.administer("GET", "/journal")["rows"]
        return {row["rule"] for row in rows if row["kind"] == "refusal" and row["security"]}

    # Those that TLS kept out are in the journal as well as those that were answered.
    wait_for(
        lambda: (
            told()
            >= {
                "CERTIFICATE_EXPIRED",
                "CHAIN_NOT_TRUSTED",
                "PEER_UNKNOWN",
                "TLS_HANDSHAKE",
                "CERTIFICATE_NOT_OF_COMPONENT",
            }
        )
    )


@pytest.mark.parametrize(
    ("path", "body", "media_type", "status"),
    [
        ("/api/v1/endpoints/E1", b"<endpoint", "application/xml", {400}),
        ("/api/v1/endpoints/E1", b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", "text/xml", {400}),
        ("/api/v1/endpoints/E1", b"<endpoint xmlns='urn:other'/>", "text/xml", {422}),
        ("/api/v1/endpoints/E1", b"{}", "application/json", {415}),
        ("/api/v1/endpoints/E2", b"<a/>", "text/xml", {403}),
        ("/api/v1/endpoints/..%2f..%2fetc%2fpasswd", b"<a/>", "text/xml", {403, 404}),
        ("/api/v1/endpoints/%2e%2e", b"<a/>", "text/xml", {403, 404}),
        ("/api/v1/endpoints/E1%00", b"<a/>", "text/xml", {400, 403}),
        ("/api/v1/endpoints/E1", b"x" * 50_000_000, "application/xml", {413}),
    ],
    ids=lambda value: str(value)[:30] if not isinstance(value, bytes) else f"{len(value)} bytes",
)
def test_bad_input_is_refused_and_changes_nothing(
    shared: tuple[DirectoryProcess, Party],
    path: str,
    body: bytes,
    media_type: str,
    status: set[int],
) -> None:
    directory, party = shared
    before = directory.content_ids()
    try:
        response = directory.request(party, "PUT", path, body, media_type)
    except (httpx.WriteError, httpx.ReadError):
        assert len(body) > 1_000_000  # refused before it was sent to its end
    else:
        assert response.status_code in status
        error = decode_error(response.content)
        assert "Traceback" not in response.text
        wait_for(lambda: any(error.id in line for line in list(directory.log)))
        journal = directory.administer("GET", "/journal")["rows"]
        assert any(row.get("refusal_id") == error.id for row in journal)
    assert directory.content_ids() == before


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, root: TestRoot
) -> Iterator[tuple[DirectoryProcess, Party]]:
    one = DirectoryProcess(tmp_path_factory.mktemp("shared") / "cd-1", "CD-1", root)
    with running(one):
        _, party = one.register("E1")
        yield one, party


@pytest.mark.req("503-10-j", component=CD)
def test_a_changed_configuration_counts_without_a_restart(directory: DirectoryProcess) -> None:
    _, party = directory.register("E1")

    def granted() -> timedelta:
        response = directory.request(party, "GET", "/api/v1/components", encode_query(Query()))
        return decode_components(response.content).answer.grants[0].ttl

    assert granted() == timedelta(hours=1)
    good = directory.file.read_text()
    directory.file.write_text(good + "\n[nonsense]\n")
    wait_for(lambda: any("configuration not reloaded" in line for line in list(directory.log)))
    assert granted() == timedelta(hours=1)
    directory.options = {"synchronisation": {"ttl": "3h"}}
    directory.write()
    wait_for(lambda: granted() == timedelta(hours=3))


def test_sigterm_is_an_orderly_stop(directory: DirectoryProcess) -> None:
    assert directory.stop() == 0
    assert any('"stopping"' in line for line in directory.log)


def test_the_integrated_ca_is_renewed_beside_the_old_one(
    directory: DirectoryProcess, tmp_path: Path
) -> None:
    _, old = directory.register("E1")
    directory.stop()
    directory.root.certify(DirectoryKeys(read_directory_configuration(directory.file)))
    directory.start()
    body = encode_query(Query())
    response = directory.request(old, "GET", "/api/v1/components", body)
    assert response.status_code == 200
    entries = {c.code: c for c in decode_components(response.content).answer.components}
    kinds = [c.kind for c in entries["CD-1"].certificates]
    assert kinds.count(CertificateKind.INTEGRATED_CA) == 2
    component, new = directory.register("E2")
    assert component.issuer != old.chain[1]
    assert directory.request(new, "GET", "/api/v1/components", body).status_code == 200


@pytest.mark.req("503-7.1-b", component=CD)
@pytest.mark.timeout(3600)
# The client's library leaves a socket behind whose handshake a kill has interrupted.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_directory_that_is_killed_at_any_moment_keeps_what_it_answered(
    tmp_path: Path, root: TestRoot, soak: Soak, books: dict[str, dict[str, str]]
) -> None:
    kills = soak.scale(50)
    chance = random.Random(soak.seed)
    one = DirectoryProcess(tmp_path / "cd-1", "CD-1", root, **books)
    acknowledged = 0
    registered: set[str] = set()
    with running(one):
        _, party = one.register("E0")
        response = one.request(party, "GET", "/api/v1/components", encode_query(Query()))
        entry = next(
            c for c in decode_components(response.content).answer.components if c.code == "E0"
        )
        for kill in range(kills):
            timer = threading.Timer(chance.uniform(0.05, 1.2), one.kill)
            timer.start()
            last = None
            number = 0
            code = f"K{kill}"
            with suppress(httpx.HTTPError):
                while True:
                    phone = f"{kill}/{number}"
                    pushed = replace(entry, contact=replace(entry.contact, phone=phone))
                    answer = one.request(
                        party, "PUT", "/api/v1/endpoints/E0", encode_component(pushed)
                    )
                    assert answer.status_code == 200
                    stored, _ = decode_entry(answer.content, ComponentType.ENDPOINT)
                    assert stored.contact.phone == phone
                    last = number
                    acknowledged += 1
                    if number == 2:
                        one.register(code, BROKER_KINDS)
                        registered.add(code)
                    number += 1
            timer.join()
            one.start()
            found = one.administer("GET", "/components/E0")
            seen_kill, _, seen = found["phone"].partition("/")
            if last is not None:
                # The last answered push is there, or the one whose answer the kill took away.
                assert (int(seen_kill), int(seen)) in {(kill, last), (kill, last + 1)}
            approved = {
                r["code"]
                for r in one.administer("GET", "/registrations?status=APPROVED")["registrations"]
            }
            # Approval, entry and journal row came together; what was answered is there.
            assert one.codes() == approved | {"CD-1"}
            assert registered <= approved
            journal = one.administer("GET", "/journal")["rows"]
            sequences = [row["sequence"] for row in journal]
            assert sequences == list(range(1, len(sequences) + 1))
            if len(journal) < 1000:  # one page
                told = {r["target"] for r in journal if r.get("action") == "registration approved"}
                assert told == approved
    soak.report(kills=kills, acknowledged_pushes=acknowledged, lost=0)


def test_a_directory_goes_on_when_its_database_is_back(
    tmp_path: Path, root: TestRoot, own_postgres_server: PostgresServer
) -> None:
    books = {"postgres": own_postgres_server.create_database().section(tmp_path)}
    one = DirectoryProcess(tmp_path / "cd-1", "CD-1", root, **books)
    body = encode_query(Query())
    with running(one):
        _, party = one.register("E1")
        before = one.content_ids()
        # All its processes crash; the database recovers from its log.
        own_postgres_server.stop(signal.SIGQUIT)
        refused = one.request(party, "GET", "/api/v1/components", body)
        assert refused.status_code == 500
        assert decode_error(refused.content).id
        assert str(own_postgres_server.port) not in refused.text
        own_postgres_server.start()
        again = one.request(party, "GET", "/api/v1/components", body)
        assert again.status_code == 200
        assert one.content_ids() == before
        one.register("E2")
        # A second process of the same directory is kept out.
        done = subprocess.run(
            [*GRIDPOST, "directory", "run", "--config", one.file],
            capture_output=True,
            env=environment(),
            check=False,
            text=True,
        )
        assert done.returncode == 1
        assert "another process has the store open" in done.stderr
        assert own_postgres_server.password not in done.stderr + "".join(one.log)


def test_the_commands_set_up_and_administer_a_directory(
    tmp_path: Path, books: dict[str, dict[str, str]]
) -> None:
    def gridpost(*arguments: object, code: int = 0) -> dict[str, object]:
        done = subprocess.run(
            [*GRIDPOST, *map(str, arguments), "--json"],
            capture_output=True,
            env=environment(),
            cwd=tmp_path,
            check=False,
            text=True,
        )
        assert done.returncode == code, done.stderr
        result: dict[str, object] = json.loads(done.stdout)
        return result

    gridpost("ca", "init", "root", "--name", "Test ROOT")
    gridpost("ca", "init", "root", code=1)
    root = TestRoot(tmp_path / "root")
    directory = DirectoryProcess(tmp_path / "cd", "CD-1", root, certified=False, **books)
    config = ("--config", directory.file)
    assert gridpost("check-config", directory.file)["component"] == "component-directory"
    request = gridpost("directory", "init", *config)["request"]
    signed = tmp_path / "signed.pem"
    named = gridpost("ca", "sign", "root", request, "--out", signed)["name"]
    assert named == "CD-1 INTEGRATED CA"
    gridpost("directory", "init", *config, "--import", tmp_path / "root/root.pem", code=1)
    gridpost("directory", "init", *config, "--import", signed)
    gridpost("directory", "init", *config, code=1)
    assert not list((tmp_path / "cd").rglob("root*"))  # the root's key is nowhere near
    refused = gridpost("directory", "components", *config, code=1)["refused"]
    assert isinstance(refused, dict)
    assert refused["rule"] == "UNREACHABLE"
    with running(directory):
        out = tmp_path / "bundle.zip"
        made = gridpost("directory", "invite", "E1", *config, "--out", out)
        assert made["password"]
        assert out.stat().st_mode & 0o077 == 0
        party = directory.invite("E1")
        posted = directory.request(
            party, "POST", "/api/v1/registrations", encode_request(request_for("E1")[0])
        )
        identifier = posted.headers["location"].rpartition("/")[2]
        listed = gridpost("directory", "registrations", *config, "--status", "PENDING")
        assert identifier in json.dumps(listed)
        gridpost("directory", "approve", identifier, *config)
        gridpost("directory", "approve", identifier, *config, code=1)
        assert "E1" in json.dumps(gridpost("directory", "components", *config))
        gridpost("directory", "export", *config, "--out", tmp_path / "all.xml")
        xmllint((tmp_path / "all.xml").read_bytes(), "components.xsd")
        gridpost("directory", "revoke", "E1", *config, "--reason", "test")
        assert directory.codes() == {"CD-1"}
        rejected = directory.invite("E2")
        posted = directory.request(
            rejected, "POST", "/api/v1/registrations", encode_request(request_for("E2")[0])
        )
        identifier = posted.headers["location"].rpartition("/")[2]
        gridpost("directory", "reject", identifier, *config, "--reason", "no contract")
