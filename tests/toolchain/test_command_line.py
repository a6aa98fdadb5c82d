"""The `gridpost` command: exit codes, JSON, refusals, and that it starts quickly."""

from __future__ import annotations

import json
import sys
import types
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

import gridpost
from gridpost import bench, cli
from gridpost.core.refusal import Refusal, Rule
from gridpost.demo import DemoPlan
from gridpost.demo.result import DemoResult
from support.child import run_python


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the command as the console script does; gives exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gridpost", *words])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """A command that refuses."""
    refusal = Refusal(Rule.BAD_MESSAGE_TYPE, "'?' is not a message-type", "letters and digits")
    module = types.ModuleType("refusing")
    module.app = typer.Typer()

    @module.app.command()
    def refuse(as_json: bool = typer.Option(False, "--json")) -> None:
        raise refusal

    monkeypatch.setitem(sys.modules, "refusing", module)
    monkeypatch.setattr(cli, "COMMANDS", {**cli.COMMANDS, "refuse": "refusing"})
    return refusal


def a_bench(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    module = types.ModuleType(f"gridpost.bench.{name}")
    module.measure = lambda: bench.Measurement({"msgs_per_s": 12345.6}, {"of_limit": 0.9})
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(bench, "available", lambda: [name])


def test_the_version_is_that_of_the_package(command):
    assert command("--version") == (0, f"gridpost {gridpost.__version__}\n", "")


def test_an_unknown_command_or_option_is_wrong_usage(command):
    assert command("nonsense")[0] == 2
    assert command("bench", "--nonsense")[0] == 2


def test_a_refusal_is_one_line_on_stderr_and_no_traceback(command, refusing):
    code, out, err = command("refuse")
    assert (code, out) == (1, "")
    assert err == (
        f"INVALID_PARAMETERS: '?' is not a message-type [{refusing.id}]\nletters and digits\n"
    )


def test_a_refusal_is_one_object_with_json(command, refusing):
    code, out, err = command("refuse", "--json")
    assert code == 1
    assert json.loads(out) == {
        "refused": {
            "code": "INVALID_PARAMETERS",
            "rule": "BAD_MESSAGE_TYPE",
            "message": "'?' is not a message-type",
            "details": "letters and digits",
            "id": refusing.id,
        }
    }
    assert refusing.id in err


def test_a_mistake_of_ours_is_not_dressed_up_as_a_refusal(command, monkeypatch):
    a_bench(monkeypatch, "broken")
    monkeypatch.setattr(sys.modules["gridpost.bench.broken"], "measure", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        command("bench", "broken")


def test_bench_lists_what_there_is(command, monkeypatch):
    a_bench(monkeypatch, "seal")
    assert command("bench") == (0, "seal\n", "")
    assert json.loads(command("bench", "--json")[1]) == {"benches": ["seal"]}


def test_bench_prints_one_object_with_the_agreed_keys(command, monkeypatch):
    a_bench(monkeypatch, "seal")
    code, out, err = command("bench", "seal", "--json")
    result = json.loads(out)
    assert (code, err) == (0, "")
    assert list(result) == ["name", "machine", "figures", "ratios"]
    assert result["name"] == "seal"
    assert result["figures"] == {"msgs_per_s": 12345.6}
    assert result["ratios"] == {"of_limit": 0.9}
    assert result["machine"]["cores"] >= 1


def test_bench_shows_figures_and_ratios_to_people(command, monkeypatch):
    a_bench(monkeypatch, "seal")
    out = command("bench", "seal")[1]
    assert "12,345.6" in out
    assert "0.900" in out


def test_an_unknown_bench_is_wrong_usage_and_names_the_others(command, monkeypatch):
    a_bench(monkeypatch, "seal")
    code, _, err = command("bench", "nonsense")
    assert code == 2
    assert "there is: seal" in err


def test_every_bench_of_the_package_has_something_to_measure():
    for name in bench.available():
        assert callable(import_module(f"gridpost.bench.{name}").measure)


@pytest.mark.parametrize(("failed", "exit_code"), [(0, 0), (1, 1)])
def test_demo_hands_its_options_on_and_prints_one_object(
    command, monkeypatch, tmp_path, failed, exit_code
):
    asked = []

    def run_demo(plan, console):
        asked.append(plan)
        console.print("what people read")
        return DemoResult(3, 3 - failed, failed, 3 - failed, {"direct": 3 - failed}, 0.1)

    monkeypatch.setattr("gridpost.demo.run_demo", run_demo, raising=False)
    code, out, _ = command("demo", "--once", "--messages", "3", "--home", str(tmp_path), "--json")
    assert code == exit_code
    assert asked == [DemoPlan(True, 3, tmp_path, pipeline=True, further=True)]
    assert set(json.loads(out)) == {
        "key_figures",
        "sent",
        "received",
        "failed",
        "proofs_verified",
        "by_channel",
        "seconds",
        "parts",
        "left_out",
        "total_seconds",
    }


def test_demo_wants_at_least_one_message(command):
    assert command("demo", "--messages", "0")[0] == 2


def test_help_lists_every_command():
    shown = CliRunner().invoke(cli.app, ["--help"]).output
    assert all(name in shown for name in cli.COMMANDS)


def test_the_command_line_starts_without_what_only_some_commands_need():
    loaded = run_python("-c", "import sys, gridpost.cli; print(*sys.modules)").stdout.split()
    assert "gridpost.cli" in loaded
    heavy = {"cryptography", "lxml", "pyarrow", "proton", "starlette", "sqlite3", "asyncio"}
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["confirm", "m-1"], ("confirm", "m-1")),
        (["endpoint", "cancel", "m-1", "--reason", "late"], ("cancel", "m-1", "late")),
        (["endpoint", "resend", "m-1"], ("resend", "m-1", "")),
        (["send", "E2", "A01", "--test"], ("test", "E2", "A01")),
        (["endpoint", "resume", "partner", "E2"], ("resume", "partner", "E2")),
    ],
)
def test_an_application_reaches_the_endpoint_that_its_options_name(
    command, monkeypatch, tmp_path, words, asked
):
    calls = []

    class Endpoint:
        def __init__(self, url, **options):
            calls.append((url, options["user"], options["password"], options["ca"]))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            calls.append("closed")

        def __getattr__(self, name):
            return lambda *arguments: calls.append((name, *arguments))

    monkeypatch.setattr("gridpost.client.Endpoint", Endpoint)
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    how = ["--url", "https://e1.example", "--user", "app", "--password-file", str(secret)]
    code, out, _ = command(*words, *how, "--json")
    assert code == 0
    assert json.loads(out)
    assert calls == [("https://e1.example", "app", "open sesame", None), asked, "closed"]
    # One that was not given keeps its default, and one that is unknown is wrong usage.
    calls.clear()
    assert command(*words)[0] == 0
    assert calls[0] == ("http://127.0.0.1:8480", "", "", None)
    assert command(*words, "--endpoint", "x")[0] == 2
