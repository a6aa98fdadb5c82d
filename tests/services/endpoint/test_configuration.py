"""The configuration file of an endpoint: what is refused, what is warned of, what others are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridpost.assembly.check import check
from gridpost.assembly.endpoint_configuration import read_endpoint_configuration
from gridpost.core.delivery import Side, State, Status
from gridpost.core.message import ENCRYPTION
from gridpost.core.refusal import Refusal
from gridpost.services.endpoint.context import EndpointSettings
from gridpost.services.endpoint.tracking import processor_value
from gridpost.services.operations.passwords import hash_password
from gridpost.wire.mades.amqp_message import decode
from support.post import World

HASH = hash_password("secret")
HEAD = """component = "endpoint"
code = "E1"
home = "e1"
"""
TAIL = """[contact]
organization = "Grid of Examplia"
person = "A. Operator"
email = "ops@grid.example"
phone = "+00 1 234"
"""
PATH = '[[paths]]\npath = "INDIRECT:B1"\n'
FOLDER = '[[bindings]]\nmessage_type = "A*"\nchannel = "folder"\n'
USER = f'[users.app]\npassword = "{HASH}"\n'


def written(tmp_path: Path, text: str, head: str = "") -> Path:
    file = tmp_path / "endpoint.toml"
    file.write_text(HEAD + head + TAIL + text, encoding="utf-8")
    return file


def test_a_good_file_has_no_warnings(tmp_path: Path) -> None:
    found = check(written(tmp_path, PATH + USER))
    assert (found.component, found.code, found.warnings) == ("endpoint", "E1", [])


def test_paths_are_relative_to_the_file_and_durations_are_read(tmp_path: Path) -> None:
    more = (
        '[expiration]\ndefault = "2h"\n[expiration.by_type]\n"A*" = "15m"\n[priorities]\n"A*" = 5\n'
    )
    configuration = read_endpoint_configuration(written(tmp_path, PATH + more))
    assert configuration.home == tmp_path / "e1"
    settings = configuration.settings()
    assert settings.durations.of("A01").total_seconds() == 900
    assert settings.durations.of("B01").total_seconds() == 7200
    assert (settings.priority("A01"), settings.priority("B01")) == (5, 0)


@pytest.mark.req("503-4.5.2-a")
def test_without_a_direct_section_the_endpoint_publishes_no_address(tmp_path: Path) -> None:
    entry = read_endpoint_configuration(written(tmp_path, PATH)).entry()
    assert entry.urls == ()
    direct = '[direct]\nurls = ["amqps://e1.grid.example:5671"]\n'
    entry = read_endpoint_configuration(written(tmp_path, PATH + direct)).entry()
    assert entry.takes_connections


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[[paths]]\npath = "SOMEHOW"\n', "paths.0.path"),
        ('[[paths]]\nmessage_type = "A*B"\npath = "DIRECT"\n', "paths.0.message_type"),
        ("[users.app]\n", "a password or a certificate"),
        ('[users.app]\npassword = "plain"\n', "scrypt"),
        ('[api]\nhost = "0.0.0.0"\n', "loopback"),
        ('[direct]\nurls = ["amqp://e1"]\n', "amqps://"),
        ('[connections]\nproxy = "http://proxy:1"\n', "socks5://"),
        ('[retention]\nreceived_ids = "1d"\n', "identifiers"),
        ("[unheard]\nof = 1\n", "unheard"),
        ('[seals.E2]\nmodes = ["ECB"]\n', "mode of AES-256 'ECB' is not known here; installed are"),
        ('[seals.E2]\nmodes = ["CBC"]\n', "must be among those received"),
        ('[seals.E2.send]\nsignature = "MD5"\n', "signature algorithm 'MD5' is not known here"),
        ('[seals."E 2"]\n', "seals.E 2"),
        (FOLDER + FOLDER, "A* is bound twice"),
        (FOLDER + 'users = ["nobody"]\n', "nobody, who is no user"),
        (FOLDER + 'users = ["app"]\n' + USER + 'receive = ["B*"]\n', "who may not receive it"),
        (FOLDER + 'users = ["app"]\n' + USER + 'channels = ["soap"]\n', "is closed to app"),
        (
            FOLDER + USER + 'receive = ["A1*"]\nchannels = ["json", "soap"]\n',
            "app receives A1*, which is bound to the channel folder",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(Refusal) as refused:
        read_endpoint_configuration(written(tmp_path, text))
    assert problem in refused.value.message + refused.value.details


def test_overlapping_paths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="overlap"):
        check(written(tmp_path, PATH + PATH + USER))


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (PATH, "no user receives message-type *"),
        (USER, "no message-paths"),
        ('[[paths]]\npath = "DIRECT"\n' + USER, "there is no section direct"),
        (PATH + USER + FOLDER, "A* is bound to the channel folder, which"),
        (
            PATH + USER + 'channels = ["amqp"]\n[[bindings]]\nmessage_type = "A*"\n',
            "no user receives message-type A*",
        ),
    ],
)
def test_what_cannot_work_is_warned_of(tmp_path: Path, text: str, warning: str) -> None:
    assert any(warning in found for found in check(written(tmp_path, text)).warnings)


def test_bindings_that_cut_types_between_users_are_good(tmp_path: Path) -> None:
    other = f'[users.b]\npassword = "{HASH}"\nreceive = ["B*"]\n'
    bound = '[[bindings]]\nmessage_type = "B*"\nusers = ["b"]\n'
    bound += '[[bindings]]\nmessage_type = "B2"\nusers = ["app"]\n'
    file = written(tmp_path, PATH + USER + other + bound)
    assert check(file).warnings == []
    bindings = read_endpoint_configuration(file).bindings_of()
    assert [bindings.of(t).users for t in ("A", "B", "B2", "B21")] == [(), ("b",), ("app",), ("b",)]


def test_a_user_of_folders_shows_no_secret(tmp_path: Path) -> None:
    user = '[users.shared]\nchannels = ["folder"]\n'
    (found,) = read_endpoint_configuration(written(tmp_path, PATH + user)).users_of()
    assert found.name == "shared"


@pytest.mark.parametrize(
    ("head", "text", "problem"),
    [
        ('store = "postgres"\n', "", "belong together"),
        ("", '[postgres]\ndsn = "host=db"\n', "belong together"),
        ('store = "postgres"\n', '[postgres]\ndsn = "host"\n', "cannot be read"),
        ("", '[keys]\nplace = "store"\npassphrase = "x"\n', "never in a database unencrypted"),
        (
            'store = "postgres"\n',
            '[postgres]\ndsn = "host=db"\n[keys]\nplace = "store"\n',
            "never in a database unencrypted",
        ),
    ],
)
def test_a_shared_store_that_cannot_work_is_refused(
    tmp_path: Path, head: str, text: str, problem: str
) -> None:
    with pytest.raises(Refusal) as refused:
        read_endpoint_configuration(written(tmp_path, text, head))
    assert problem in f"{refused.value.message} {refused.value.details}"


def test_processes_may_share_the_database_and_a_folder_of_keys(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        PATH + USER + '[postgres]\ndsn = "host=db"\npassword_file = "pw"\n[keys]\nfolder = "k"\n',
        'store = "postgres"\n',
    )
    (tmp_path / "pw").write_text("told to nobody\n")
    assert check(file).warnings == []
    configuration = read_endpoint_configuration(file)
    assert configuration.keys_folder() == tmp_path / "k"
    assert configuration.postgres is not None
    assert configuration.postgres.settings().password == "told to nobody"


BOTH = '[seals."*"]\nmodes = ["GCM", "CBC"]\n'


async def modes(world: World, *ways: tuple[str, str]) -> list[str]:
    """Which mode a document of each way names, once its recipient has opened it."""
    found = []
    for sender, receiver in ways:
        message_id = await world[sender].send(receiver)
        before = len(world.post.carried)
        await world.carry()
        assert await world[receiver].state(Side.RECEIVED, message_id) is State.WAITING
        carried = decode(world.post.carried[before].data).message
        assert carried.metadata.message_id == message_id
        found.append(processor_value(carried.metadata, ENCRYPTION, "Mode"))
    return found


@pytest.mark.req("503-9.3-b")
@pytest.mark.req("503-9.3-c")
async def test_a_new_algorithm_is_received_everywhere_before_one_endpoint_sends_it(
    tmp_path: Path,
) -> None:
    def configured(text: str) -> EndpointSettings:
        return read_endpoint_configuration(written(tmp_path, PATH + text)).settings()

    world = World(settings=configured(BOTH), codes=("E1", "E2", "E3"))
    ways = (("E1", "E2"), ("E2", "E1"), ("E3", "E2"))
    assert await modes(world, *ways) == ["GCM", "GCM", "GCM"]
    # Switched on by configuration, while the endpoint runs, for one of them.
    world["E1"].context.settings = configured(BOTH + '[seals."*".send]\nmode = "CBC"\n')
    assert await modes(world, *ways) == ["CBC", "GCM", "GCM"]
    # To one peer by its name, to the others as `*` says.
    named = '[seals.E3]\nmodes = ["GCM", "CBC"]\nsend = { mode = "CBC" }\n'
    world["E1"].context.settings = configured(BOTH + named)
    assert await modes(world, ("E1", "E2"), ("E1", "E3")) == ["GCM", "CBC"]
    # Who has not enabled it refuses it.
    world["E3"].context.settings = configured("")
    message_id = await world["E1"].send("E3")
    await world.carry()
    assert await world["E1"].status(message_id) is Status.FAILED


def test_weaker_seals_are_doubted(tmp_path: Path) -> None:
    text = '[seals.E2]\nmodes = ["GCM", "CBC"]\nsend = { padding = "PKCS1-v1_5" }\n'
    found = check(written(tmp_path, PATH + USER + text)).warnings
    assert [line.partition(":")[0] for line in found] == [
        "seals.E2 allows CBC",
        "seals.E2 allows PKCS1-v1_5",
    ]
