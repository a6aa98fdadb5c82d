"""503 cl. 7.6, 8.5: registration and its extension as an endpoint or broker does them, over real TLS."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.component import CERTIFICATE_KINDS, ComponentType
from gridpost.core.enrolment import EnrolmentState
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.directory_client.enrolment import OwnKeys
from gridpost.stores.keys.memory import MemoryKeyring
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.wire.directory import decode_request
from gridpost.wire.x509 import KeyBundle, public_key, public_key_bytes, read_pkcs12, write_pkcs12
from support.builders import CONTACT
from support.directory_client import Machine, both
from support.fake_directory import PASSWORD, FakeDirectory
from support.https import listening, live_pki
from support.pki import rsa_key, spki


async def registering(
    machine: Machine, directory: FakeDirectory, *urls: str, keys: OwnKeys | None = None
) -> DirectoryClient:
    client = await machine.start()
    bundle = directory.bundle(machine.code, *urls)
    await client.enroller.register(bundle, PASSWORD, CONTACT, keys, by="administrator")
    return client


@both("503-7.6-a")
@pytest.mark.parametrize("secondary", [False, True])
async def test_the_administrator_gives_one_or_two_urls(
    kind: ComponentType, secondary: bool
) -> None:
    directory, machine = FakeDirectory(), Machine(kind)

    async def down(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with directory.running(), listening(down) as dead:
        urls = (f"https://127.0.0.1:{dead}", directory.url) if secondary else (directory.url,)
        client = await registering(machine, directory, *urls)
        await client.enroller.step()
    assert len(directory.of("POST")) == 1


@both("503-7.6-b", "503-7.6-c", "503-7.6-e", "503-7.6-k")
async def test_the_installation_certificate_registers_and_does_nothing_else(
    kind: ComponentType,
) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await registering(machine, directory)
        assert directory.seen == []
        await client.enroller.step()
        directory.approve()
        await client.enroller.run()
        await client.synchroniser.round()
        await client.configuration.change(machine.component(), by="administrator")
        await client.configuration.push()
    installation = directory.pki.installation(machine.code)
    assert len(directory.of("POST")) == 1
    issued = next(
        c for c in machine.keys.certificates() if c.kind is CertificateKind.AUTHENTICATION
    )
    for seen in directory.seen:
        if seen.path.startswith("/api/v1/registrations"):
            # Its serial number is new in each bundle: the key tells that it is the one handed over.
            assert public_key_bytes(public_key(seen.leaf)) == public_key_bytes(
                public_key(installation)
            )
        else:
            assert seen.leaf == issued.der


async def test_an_incomplete_request_is_not_posted() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await machine.start()
        with pytest.raises(Refusal):
            await client.enroller.register(
                directory.bundle("E1"), "not the password", CONTACT, by="administrator"
            )
        assert await client.enroller.step() is None
    assert directory.seen == []


@both("503-7.6-f")
async def test_the_request_holds_public_keys_and_the_private_ones_stay(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await registering(machine, directory)
        await client.enroller.step()
        directory.approve()
        await client.enroller.run()
    (post,) = directory.of("POST")
    request = decode_request(post.body)
    assert {k.kind for k in request.public_keys} == CERTIFICATE_KINDS[kind]
    for key in request.public_keys:
        assert machine.keys.export_key(key.spki) not in post.body
        assert b"PRIVATE" not in post.body
    certified = {public_key_bytes(public_key(c.der)) for c in machine.keys.certificates()}
    assert certified == {key.spki for key in request.public_keys}


@pytest.mark.req("503-7.6-d")
@pytest.mark.req("503-7.6-g", component="endpoint")
async def test_an_external_signing_pair_is_used_and_the_rest_comes_from_the_directory() -> None:
    directory, machine = FakeDirectory(), Machine()
    outside = live_pki("CD-9", "EXTERNAL").component(
        "E1", [CertificateKind.SIGNING], key_name="ext"
    )
    file = write_pkcs12(
        KeyBundle(to_pkcs8(outside.keys[CertificateKind.SIGNING]), outside.signing.der), "secret"
    )
    keys = OwnKeys(external={CertificateKind.SIGNING: read_pkcs12(file, "secret")})
    async with directory.running():
        client = await registering(machine, directory, keys=keys)
        await client.enroller.step()
        directory.approve()
        await client.enroller.run()
    (post,) = directory.of("POST")
    request = decode_request(post.body)
    assert [c.der for c in request.certificates] == [outside.signing.der]
    assert [s.certificate.der for s in machine.keys.signers()] == [outside.signing.der]
    (opener,) = machine.keys.openers()
    assert opener.certificate.der != outside.signing.der
    assert {k.kind for k in request.public_keys} == {
        CertificateKind.AUTHENTICATION,
        CertificateKind.ENCRYPTION,
    }


async def test_an_expired_external_certificate_is_refused_before_anything_is_sent() -> None:
    directory, machine = FakeDirectory(), Machine()
    outside = live_pki("CD-9", "EXTERNAL").component("E1", [CertificateKind.SIGNING])
    machine.clock.ahead = timedelta(days=366)
    key = to_pkcs8(outside.keys[CertificateKind.SIGNING])
    keys = OwnKeys(external={CertificateKind.SIGNING: KeyBundle(key, outside.signing.der)})
    with pytest.raises(Refusal) as caught:
        await registering(machine, directory, keys=keys)
    assert caught.value.rule is Rule.CERTIFICATE_EXPIRED


@both("503-7.6-i")
async def test_the_outcome_is_asked_for_until_it_is_known(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await registering(machine, directory)
        assert await client.enroller.step() == machine.settings.poll
        for _ in range(3):
            assert await client.enroller.step() == machine.settings.poll
            client = await machine.start()  # restarted while PENDING: it goes on
        directory.approve()
        await client.enroller.run()
        assert len(directory.of("GET")) == 4
        assert await client.enroller.step() is None
        assert len(directory.of("GET")) == 4
        assert len(directory.of("POST")) == 1

    directory, rejected = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await registering(rejected, directory)
        await client.enroller.step()
        directory.reject("unknown organisation")
        asked = len(directory.seen)
        done = await client.enroller.run()
        assert (done.state, done.reason) == (EnrolmentState.REJECTED, "unknown organisation")
        assert await client.enroller.step() is None
        assert len(directory.seen) == asked + 1
    assert rejected.keys.certificates() == ()


@both("503-7.6-n", "503-7.6-r", "503-8.5-a", "503-8.5-b")
async def test_the_extension_is_asked_for_in_time_and_by_itself(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(lifetime=timedelta(days=40)), Machine(kind)
    machine.settings = replace(machine.settings, anticipation=timedelta(days=20))
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        old = machine.keys.certificates()
        directory.auto_approve = True
        machine.clock.ahead = timedelta(days=19)
        await client.renewal.attempt()
        assert len(directory.of("POST")) == 1
        # The copy in use has lapsed in these 19 days, the extension works all the same.
        machine.clock.ahead = timedelta(days=21)
        directory.lifetime = timedelta(days=400)
        while await client.renewal.attempt() == timedelta(0):
            pass
        assert len(directory.of("POST")) == 2
        new = [c for c in machine.keys.certificates() if c not in old]
        assert {c.kind for c in new} == CERTIFICATE_KINDS[kind]
        # Nothing is renewed twice.
        machine.clock.ahead = timedelta(days=22)
        await client.renewal.attempt()
    assert len(directory.of("POST")) == 2


async def test_certificates_of_a_short_life_are_not_renewed_without_end() -> None:
    directory, machine = FakeDirectory(lifetime=timedelta(days=10)), Machine()
    machine.settings = replace(machine.settings, anticipation=timedelta(days=20))
    async with directory.running():
        client = await machine.enrolled(directory)
        directory.auto_approve = True
        for day in (1, 4, 6, 6, 6):
            machine.clock.ahead = timedelta(days=day)
            while await client.renewal.attempt() == timedelta(0):
                pass
    assert len(directory.of("POST")) == 2


@both("503-7.6-o")
async def test_an_extension_shows_the_issued_certificate(kind: ComponentType) -> None:
    directory, machine = FakeDirectory(), Machine(kind)
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        issued = client.tls().chain[0]
        await client.enroller.renew(by="administrator")
        await client.enroller.step()
        assert directory.of("POST")[-1].leaf == issued
        directory.approve()
        await client.enroller.run()
        assert directory.of("GET")[-1].leaf == issued
        # With an expired certificate nothing can be asked for.
        machine.clock.ahead = timedelta(days=400)
        with pytest.raises(Refusal) as caught:
            await client.enroller.renew(by="administrator")
    assert caught.value.rule is Rule.NOT_ENROLLED


@both("503-7.6-p", "503-8.2-b")
@pytest.mark.parametrize("imported", [False, True])
async def test_keys_are_generated_or_imported(kind: ComponentType, imported: bool) -> None:
    directory = FakeDirectory()
    machine = Machine(kind, keys=MemoryKeyring())
    brought = {k: rsa_key(f"brought {kind} {k}") for k in CERTIFICATE_KINDS[kind]}
    keys = OwnKeys({k: to_pkcs8(key) for k, key in brought.items()}) if imported else OwnKeys()
    async with directory.running():
        directory.auto_approve = True
        client = await registering(machine, directory, keys=keys)
        assert (await client.enroller.run()).state is EnrolmentState.INSTALLED
        await client.synchroniser.round()
    certified = [public_key_bytes(public_key(c.der)) for c in machine.keys.certificates()]
    assert len(set(certified)) == len(CERTIFICATE_KINDS[kind])
    assert all(public_key(c.der).key_size == 2048 for c in machine.keys.certificates())
    if imported:
        assert set(certified) == {spki(key) for key in brought.values()}
    else:
        other = MemoryKeyring()
        assert other.create_key() not in certified
    short = OwnKeys({CertificateKind.AUTHENTICATION: to_pkcs8(rsa_key("short", 1024))})
    with pytest.raises(Refusal) as caught:
        await registering(Machine(kind), directory, keys=short)
    assert caught.value.rule is Rule.BAD_KEY
