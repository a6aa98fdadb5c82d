"""The component's side of registration and synchronisation against a directory that is a process."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.core.certificate import CertificateKind, of_kind
from gridpost.core.component import ComponentType
from gridpost.core.enrolment import EnrolmentState
from gridpost.stores.keys import pkcs8
from gridpost.wire.directory import InstallationBundle, decode_bundle
from gridpost.wire.x509 import to_pem
from support.builders import CONTACT, path
from support.directory_client import Machine
from support.directory_process import (
    TOKEN,
    DirectoryProcess,
    TestRoot,
    free_port,
    running,
    wait_for,
)
from support.https import Proxy, listening
from support.pki import TestPki
from support.postgres import PostgresDatabase

CD = "component-directory"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> TestRoot:
    return TestRoot(tmp_path_factory.mktemp("root") / "ca")


@pytest.fixture
def directory(tmp_path: Path, root: TestRoot) -> Iterator[DirectoryProcess]:
    one = DirectoryProcess(tmp_path / "cd-1", "CD-1", root)
    with running(one):
        yield one


def bundle_for(directory: DirectoryProcess, code: str) -> InstallationBundle:
    invited = directory.administer("POST", "/invitations", {"code": code, "password": "pw"})
    return decode_bundle(b64decode(invited["bundle"]))


@pytest.mark.parametrize("kind", [ComponentType.ENDPOINT, ComponentType.BROKER])
async def test_a_component_registers_renews_and_pushes(
    directory: DirectoryProcess, kind: ComponentType
) -> None:
    machine = Machine(kind)
    client = await machine.start()
    bundle = await asyncio.to_thread(bundle_for, directory, machine.code)
    prepared = await client.enroller.register(bundle, "pw", CONTACT, by="administrator")
    # The answer to the first request is lost: the second one finds the registration again.
    await client.enroller._exchange(prepared).register(prepared.request)
    await client.enroller.step()
    submitted = await client.enroller.current()
    assert submitted is not None
    assert submitted.state is EnrolmentState.SUBMITTED
    await asyncio.to_thread(
        directory.administer, "POST", f"/registrations/{submitted.registration_id}/approve"
    )
    installed = await client.enroller.run()
    assert installed.state is EnrolmentState.INSTALLED
    await client.synchroniser.round()
    entry = client.directory().find(machine.code, machine.clock.now())
    assert entry is not None
    assert entry.type is kind
    await client.enroller.renew(by="administrator")
    assert (await client.enroller.run()).state is EnrolmentState.INSTALLED
    await client.synchroniser.round()
    entry = client.directory().find(machine.code, machine.clock.now())
    assert entry is not None
    assert len(of_kind(entry.certificates, CertificateKind.AUTHENTICATION)) == 2


@pytest.mark.req("503-10-e", component=CD)
async def test_a_standby_serves_under_the_second_url_when_the_first_instance_is_gone(
    tmp_path: Path, root: TestRoot, postgres: PostgresDatabase
) -> None:
    books = postgres.section(tmp_path)
    first = DirectoryProcess(tmp_path / "cd-1", "CD-1", root, postgres=books)
    second = DirectoryProcess(tmp_path / "cd-1b", "CD-1", root, certified=False, postgres=books)
    for instance in (first, second):
        instance.options["server"] = {"urls": [first.url, second.url]}
        instance.write()
        instance.file.write_text("standby = true\n" + instance.file.read_text())
    machine = Machine(ComponentType.ENDPOINT)

    def begin() -> InstallationBundle:
        first.start()
        # The keys are in a folder that both machines see, or copied.
        shutil.copytree(first.home / "data" / "keys", second.home / "data" / "keys")
        second.spawn()
        wait_for(lambda: any("standing by" in line for line in list(second.log)), 60)
        return bundle_for(first, machine.code)

    try:
        bundle = await asyncio.to_thread(begin)
        assert tuple(bundle.urls) == (first.url, second.url)
        client = await machine.start()
        await client.enroller.register(bundle, "pw", CONTACT, by="administrator")
        await client.enroller.step()
        submitted = await client.enroller.current()
        assert submitted is not None
        await asyncio.to_thread(
            first.administer, "POST", f"/registrations/{submitted.registration_id}/approve"
        )
        await client.enroller.run()
        await client.synchroniser.round()
        await asyncio.to_thread(first.kill)
        await asyncio.to_thread(wait_for, second._answers, 60)
        # The same client, with what it knows: the second URL answers, with the same content.
        before = {s.content_id for s in client.directory().subsystems.values()}
        await client.synchroniser.round()
        assert {s.content_id for s in client.directory().subsystems.values()} == before
        changed = machine.component(path("A01", "INDIRECT:B1"))
        await client.configuration.change(changed, by="administrator")
        await client.configuration.attempt()
        assert not client.configuration.state.pending
        assert await asyncio.to_thread(second.stop) == 0
        assert not await asyncio.to_thread(lambda: first.process and first.process.poll() is None)
    finally:
        for instance in (first, second):
            if instance.process is not None and instance.process.poll() is None:
                instance.kill()


@pytest.mark.req("503-7.7.3-h")
@pytest.mark.req("503-10-d", "503-10-f", component=CD)
async def test_a_directory_goes_through_a_proxy_and_finds_the_url_that_works(
    tmp_path: Path, root: TestRoot
) -> None:
    proxy = Proxy()
    async with listening(proxy) as port:
        one = DirectoryProcess(
            tmp_path / "cd-1",
            "CD-1",
            root,
            synchronisation={"cycle": "300ms", "proxy": f"http://127.0.0.1:{port}"},
        )
        two = DirectoryProcess(tmp_path / "cd-2", "CD-2", root)

        def synchronised() -> None:
            with running(two):
                text = one.file.read_text()
                dead = f"https://127.0.0.1:{free_port()}"
                one.file.write_text(
                    f'{text}\n[[synchronisation.peers]]\ncode = "CD-2"\n'
                    f'urls = ["{dead}", "{two.url}"]\n'
                )
                two.peers = [one]
                two.write()
                try:
                    one.start()
                    two.register("E2")
                    wait_for(lambda: one.codes() == {"CD-1", "CD-2", "E2"}, 60)
                finally:
                    one.kill()

        await asyncio.to_thread(synchronised)
    assert any(target.endswith(f":{two.port}") for target in proxy.targets)


@pytest.mark.req("503-10-l", component=CD)
def test_the_administration_speaks_https_with_authentication(
    tmp_path: Path, root: TestRoot
) -> None:
    own = TestPki("CD-1", now=Machine().clock.now()).component("ADMINISTRATION")
    chain, key = tmp_path / "admin.pem", tmp_path / "admin.key"
    chain.write_bytes(to_pem(own.chain[0]))
    key.write_bytes(pkcs8.write(own.keys[CertificateKind.AUTHENTICATION], None))
    directory = DirectoryProcess(
        tmp_path / "cd-1",
        "CD-1",
        root,
        administration={"certificate": str(chain), "key": str(key)},
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(chain)
    base = f"https://127.0.0.1:{directory.administration_port}"

    def healthy() -> bool:
        return httpx.get(f"{base}/health", verify=context, trust_env=False).is_success

    directory._answers = healthy  # type: ignore[method-assign]
    with running(directory):
        where = "/admin/v1/components"
        refused = httpx.get(base + where, verify=context, trust_env=False, timeout=60)
        assert refused.status_code == 401
        shown = httpx.get(
            base + where,
            verify=context,
            trust_env=False,
            headers={"authorization": f"Bearer {TOKEN}"},
            timeout=60,
        )
        assert shown.status_code == 200
        with pytest.raises(httpx.HTTPError):
            httpx.get(base.replace("https", "http") + where, trust_env=False)
    assert read_directory_configuration(directory.file).administration.certificate == chain
