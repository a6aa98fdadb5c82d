"""Registration from the component's side, killed at every point where a process can be killed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridpost.core.certificate import CertificateKind
from gridpost.core.component import ComponentType
from gridpost.core.enrolment import EnrolmentState
from gridpost.core.refusal import Refusal, Rule
from gridpost.services.directory_client.client import DirectoryClient
from gridpost.services.directory_client.enrolment import OwnKeys
from gridpost.stores.keys.rsa_operations import to_pkcs8
from gridpost.transports.https import ClientTls, HttpsClient
from gridpost.wire.directory import decode_request
from gridpost.wire.x509 import KeyBundle, public_key, public_key_bytes
from support.builders import CONTACT
from support.directory_client import Crash, CrashingCaller, Machine, crashing
from support.fake_directory import PASSWORD, FakeDirectory
from support.pki import rsa_key


async def prepared(machine: Machine, directory: FakeDirectory) -> DirectoryClient:
    client = await machine.start()
    await client.enroller.register(directory.bundle(machine.code), PASSWORD, CONTACT, by="admin")
    return client


async def test_a_registration_goes_from_intent_to_installed_certificates() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await prepared(machine, directory)
        assert directory.seen == []
        await client.enroller.step()
        assert [c.kind for c in machine.keys.certificates()] == []
        directory.approve()
        done = await client.enroller.run()
    assert done.state is EnrolmentState.INSTALLED
    installed = {c.kind: c for c in machine.keys.certificates()}
    assert set(installed) == {
        CertificateKind.AUTHENTICATION,
        CertificateKind.SIGNING,
        CertificateKind.ENCRYPTION,
    }
    assert client.tls().chain == (
        installed[CertificateKind.AUTHENTICATION].der,
        directory.pki.integrated_ca,
    )


class Killer:
    """Raises Crash at the n-th call of a method, before or after it did its work."""

    def __init__(self, target: Any, method: str, nth: int, *, after: bool) -> None:
        self._call: Callable[..., Any] = getattr(target, method)
        self._left = nth
        self._after = after
        setattr(target, method, self)

    def __call__(self, *args: Any) -> Any:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Crash
        result = self._call(*args)
        if self._left == 0:
            if hasattr(result, "__await__"):

                async def then() -> Any:
                    await result
                    raise Crash

                return then()
            raise Crash
        return result


# Commits of a registration that is approved on the second look: PREPARED, SUBMITTED, APPROVED,
# INSTALLED; installations: three certificates.
COMMITS = [("store", "run", nth, after) for nth in (1, 2, 3, 4) for after in (False, True)]
INSTALLS = [("keys", "install", nth, after) for nth in (1, 2, 3) for after in (False, True)]
KEYS = [("keys", "create_key", nth, after) for nth in (1, 2, 3) for after in (False, True)]


@pytest.mark.parametrize(("where", "method", "nth", "after"), COMMITS + INSTALLS + KEYS)
async def test_a_crash_anywhere_is_survived_with_the_same_keys(
    where: str, method: str, nth: int, after: bool
) -> None:
    directory, machine = FakeDirectory(), Machine()
    target = getattr(machine, where)
    original = getattr(target, method)
    Killer(target, method, nth, after=after)
    async with directory.running():
        with crashing():
            client = await prepared(machine, directory)
            await client.enroller.step()
            directory.approve()
            await client.enroller.run()
        setattr(target, method, original)

        client = await machine.start()
        if await client.enroller.current() is None:
            # Killed before the intent was stored: nothing was sent, the administrator starts again.
            assert directory.seen == []
            client = await prepared(machine, directory)
        await client.enroller.step()
        directory.approve()
        done = await client.enroller.run()

    assert done.state is EnrolmentState.INSTALLED
    posted = {decode_request(seen.body).public_keys for seen in directory.of("POST")}
    assert len(posted) == 1
    keys = {key.spki for key in posted.pop()}
    assert {public_key_bytes(public_key(c.der)) for c in machine.keys.certificates()} == keys
    assert len(directory.registrations) == 1


@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_around_the_post_repeats_it_with_the_same_keys(after: bool) -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await prepared(machine, directory)
        object.__setattr__(
            client.context,
            "callers",
            lambda credentials: CrashingCaller(HttpsClient(ClientTls(credentials)), after=after),
        )
        with crashing():
            await client.enroller.step()
        client = await machine.start()
        await client.enroller.step()
        posts = directory.of("POST")
        assert len(posts) == (2 if after else 1)
        assert len({seen.body for seen in posts}) == 1
        assert len(directory.registrations) == 1


async def test_an_answer_that_is_lost_is_asked_for_again() -> None:
    directory, machine = FakeDirectory(), Machine()
    directory.cut = lambda seen: len(directory.of("POST")) == 1
    async with directory.running():
        client = await prepared(machine, directory)
        await client.enroller.step()
        assert "cannot be reached" in client.enroller.reason
        await client.enroller.step()
        directory.approve()
        assert (await client.enroller.run()).state is EnrolmentState.INSTALLED


async def test_a_directory_that_forgot_the_request_gets_it_again() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await prepared(machine, directory)
        await client.enroller.step()
        directory.registrations.clear()
        await client.enroller.step()
        enrolment = await client.enroller.current()
        assert enrolment is not None
        assert enrolment.state is EnrolmentState.PREPARED
        directory.auto_approve = True
        assert (await client.enroller.run()).state is EnrolmentState.INSTALLED
    assert len({seen.body for seen in directory.of("POST")}) == 1


async def test_a_request_that_the_directory_does_not_take_ends_with_its_reason() -> None:
    directory, machine = FakeDirectory(), Machine()
    directory.fail = 409
    async with directory.running():
        client = await prepared(machine, directory)
        done = await client.enroller.run()
    assert done.state is EnrolmentState.REJECTED
    assert "409" in done.reason
    assert machine.keys.certificates() == ()


async def test_certificates_for_other_keys_are_not_installed() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await prepared(machine, directory)
        await client.enroller.step()
        directory.approve()
        for number, registration in directory.registrations.items():
            forged = directory.pki.component(machine.code)
            directory.registrations[number] = replace(registration, issued=forged.certificates)
        await client.enroller.step()
        assert "without a certificate for its" in client.enroller.reason
    assert machine.keys.certificates() == ()


async def test_a_server_that_is_not_the_directory_of_the_bundle_gets_no_request() -> None:
    directory, machine, other = FakeDirectory(), Machine(), FakeDirectory("CD-2")
    async with directory.running(), other.running():
        client = await machine.start()
        bundle = directory.bundle(machine.code, other.url)
        await client.enroller.register(bundle, PASSWORD, CONTACT, by="admin")
        await client.enroller.step()
    assert client.enroller.reason
    assert other.seen == []


async def test_a_second_registration_waits_for_the_first_unless_that_is_given_up() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await prepared(machine, directory)
        with pytest.raises(Refusal) as caught:
            await prepared(machine, directory)
        assert caught.value.rule is Rule.ENROLMENT_RUNNING
        await client.enroller.abandon("the administrator of the directory is away", by="admin")
        await prepared(machine, directory)


async def test_the_bundle_of_another_component_is_refused() -> None:
    directory, machine = FakeDirectory(), Machine()
    client = await machine.start()
    with pytest.raises(Refusal, match="is for E9"):
        await client.enroller.register(directory.bundle("E9"), PASSWORD, CONTACT, by="admin")
    with pytest.raises(Refusal, match="password"):
        await client.enroller.register(directory.bundle("E1"), "wrong", CONTACT, by="admin")


async def test_a_broker_with_the_keys_of_an_endpoint_is_refused() -> None:
    directory, machine = FakeDirectory(), Machine(ComponentType.BROKER)
    client = await machine.start()
    external = directory.pki.component("B1", [CertificateKind.SIGNING])
    key = to_pkcs8(external.keys[CertificateKind.SIGNING])
    bundle = KeyBundle(key, external.signing.der)
    with pytest.raises(Refusal) as caught:
        await client.enroller.register(
            directory.bundle("B1"),
            PASSWORD,
            CONTACT,
            OwnKeys(external={CertificateKind.SIGNING: bundle}),
            by="admin",
        )
    assert caught.value.rule is Rule.REGISTRATION_KEYS


async def test_new_keys_decrypt_at_once_and_open_connections_when_they_are_published() -> None:
    directory, machine = FakeDirectory(), Machine()
    async with directory.running():
        client = await machine.enrolled(directory)
        await client.synchroniser.round()
        old = client.tls().chain[0]
        directory.auto_approve = True
        await client.enroller.renew(by="admin")
        await client.enroller.run()
        assert len(machine.keys.openers()) == 2
        assert client.tls().chain[0] == old
        await client.synchroniser.round()
        assert client.tls().chain[0] != old


async def test_an_imported_key_that_is_too_short_is_refused() -> None:
    directory, machine = FakeDirectory(), Machine()
    client = await machine.start()
    with pytest.raises(Refusal, match="1024"):
        await client.enroller.register(
            directory.bundle("E1"),
            PASSWORD,
            CONTACT,
            OwnKeys(imported={CertificateKind.SIGNING: to_pkcs8(rsa_key("short", 1024))}),
            by="admin",
        )
    assert await client.enroller.current() is None
