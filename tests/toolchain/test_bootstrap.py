"""scripts/bootstrap.sh, in a folder of its own with stand-ins for everything it would install with."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REAL = ["bash", "cat", "cp", "cut", "dirname", "env", "flock", "id", "mkdir", "printf", "sed"]
REAL += ["rm", "sha256sum", "timeout", "true"]
# Found on a machine that lacks nothing; each stand-in notes that it was called and succeeds.
PRESENT = ["apt-cache", "apt-get", "cc", "git", "node", "npm", "pkg-config", "softhsm2-util"]
PRESENT += ["chromium", "initdb", "mvn", "rabbitmq-server", "strace", "wsimport", "xmllint"]

NOTE = '#!/bin/bash\necho "$(basename "$0") $*" >>"$CALLS"\n'
# Answers questions about itself like the real one; only notes what it is asked to install.
PYTHON = (
    NOTE
    + f"""
case "$1 $2" in
    "-m venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    "-m pip") [ ! -e pip-is-broken ] ;;
    *_base_executable*) command -v python3 ;;
    *) exec {sys.executable} "$@" ;;
esac
"""
)


class Machine:
    """A copy of the script and its inputs, and a PATH that holds only what the test puts there."""

    def __init__(self, folder: Path) -> None:
        self.project, self.bin, self.calls_file = folder / "p", folder / "bin", folder / "calls"
        self.bin.mkdir()
        for file in ["scripts/bootstrap.sh", "pyproject.toml", "requirements.lock"]:
            self._copy(file)
        for file in ["package.json", "package-lock.json"]:
            self._copy(f"tests/interop/{file}")
        for name in [*REAL, "basename"]:
            (self.bin / name).symlink_to(shutil.which(name) or f"/usr/bin/{name}")
        for name in PRESENT:
            self.stand_in(name)
        self.stand_in("npm", NOTE + "mkdir -p node_modules\n")
        self.stand_in("javac", "#!/bin/bash\necho javac 17.0.1\n")
        self.stand_in("python3", PYTHON)

    def _copy(self, file: str) -> None:
        (self.project / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, self.project / file)

    def stand_in(self, name: str, text: str = NOTE) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def lacks(self, *names: str) -> None:
        for name in names:
            (self.bin / name).unlink()

    def bootstrap(self, **environment: str) -> subprocess.CompletedProcess[str]:
        self.calls_file.write_text("")
        return subprocess.run(
            [self.bin / "bash", self.project / "scripts/bootstrap.sh"],
            env={
                "PATH": str(self.bin),
                "CALLS": str(self.calls_file),
                "GRIDPOST_DISTRIBUTION_PYTHON": "",
                **environment,
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self, *names: str) -> list[str]:
        """What was called during the last run, of the commands that install something."""
        names = names or ("apt-get", "npm", "python -m", "python3 -m")
        return [line for line in self.calls_file.read_text().splitlines() if line.startswith(names)]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def as_ordinary_user(machine: Machine, *, sudo: bool) -> None:
    machine.stand_in("id", "#!/bin/bash\necho 1000\n")
    allowed = '[ "$1" = -n ] && shift && exec "$@"' if sudo else "exit 1"
    machine.stand_in("sudo", NOTE + allowed + "\n")


def test_the_first_run_installs_the_lock_with_hashes_and_then_the_package_alone(machine):
    run = machine.bootstrap()
    assert run.returncode == 0, run.stderr
    venv, lock, package = machine.calls("python -m", "python3 -m")
    assert venv.startswith("python3 -m venv")
    assert "--require-hashes -r requirements.lock" in lock
    assert "--no-deps --no-build-isolation -e ." in package
    assert machine.calls("npm") == ["npm ci --no-audit --no-fund --loglevel=error"]
    assert machine.calls("apt-get") == []


def test_the_second_run_calls_neither_pip_nor_apt_nor_npm(machine):
    assert machine.bootstrap().returncode == 0
    run = machine.bootstrap()
    assert run.returncode == 0
    assert machine.calls() == []
    assert run.stderr == ""


@pytest.mark.parametrize("file", ["requirements.lock", "pyproject.toml"])
def test_the_environment_is_made_again_when_its_inputs_change(machine, file):
    machine.bootstrap()
    with (machine.project / file).open("a") as text:
        text.write("# changed\n")
    machine.bootstrap()
    assert len(machine.calls("python -m pip")) == 2


def test_another_python_in_front_of_the_path_does_not_change_the_environment(machine):
    machine.bootstrap()
    machine.stand_in("python3.13", (machine.bin / "python3").read_text())
    machine.stand_in("python3", "#!/bin/bash\nexit 1\n")
    (machine.project / ".venv/bin/python").write_text(
        (machine.bin / "python3.13")
        .read_text()
        .replace("command -v python3 ", "command -v python3.13 ")
    )
    assert machine.bootstrap().returncode == 0
    assert machine.calls() == []


def test_the_distributions_own_python_comes_before_one_on_the_path(machine, tmp_path):
    own = tmp_path / "distribution-python3"
    shutil.copy(machine.bin / "python3", own)
    assert machine.bootstrap(GRIDPOST_DISTRIBUTION_PYTHON=str(own)).returncode == 0
    assert machine.calls("distribution-python3 -m") == [
        "distribution-python3 -m venv --clear .venv"
    ]
    assert machine.calls("python3 -m venv") == []


def test_an_environment_that_was_not_finished_is_made_again(machine):
    (machine.project / "pip-is-broken").touch()
    assert machine.bootstrap().returncode != 0
    (machine.project / "pip-is-broken").unlink()
    assert machine.bootstrap().returncode == 0
    assert len(machine.calls("python -m pip")) == 2


def test_root_installs_what_is_missing_with_apt(machine):
    machine.lacks("strace", "xmllint")
    machine.stand_in("id", "#!/bin/bash\necho 0\n")
    provide = 'case "$*" in install*) cp "$0" "${0%/*}/strace"; cp "$0" "${0%/*}/xmllint" ;; esac\n'
    machine.stand_in("apt-get", NOTE + provide)
    run = machine.bootstrap()
    assert run.returncode == 0, run.stderr
    update, install = machine.calls("apt-get")
    assert update.endswith("update")
    assert "strace libxml2-utils" in install


def test_a_user_who_may_not_install_gets_the_one_command_to_run(machine):
    machine.lacks("strace", "pkg-config")
    as_ordinary_user(machine, sudo=False)
    run = machine.bootstrap()
    assert run.returncode == 1
    commands = [line.strip() for line in run.stderr.splitlines() if "apt-get" in line]
    assert commands == [
        "sudo apt-get update && sudo apt-get install -y --no-install-recommends "
        "pkg-config libssl-dev strace"
    ]
    assert machine.calls() == []
    assert not (machine.project / ".venv").exists()


def test_a_user_with_sudo_that_asks_no_password_installs_through_it(machine):
    machine.lacks("strace")
    as_ordinary_user(machine, sudo=True)
    machine.stand_in("apt-get", NOTE + 'cp "$0" "${0%/*}/strace"\n')
    assert machine.bootstrap().returncode == 0
    assert any("install" in call for call in machine.calls("apt-get"))


def test_a_package_that_apt_does_not_bring_is_named(machine):
    machine.lacks("strace")
    machine.stand_in("id", "#!/bin/bash\necho 0\n")
    run = machine.bootstrap()
    assert run.returncode == 1
    assert "still missing after installation: strace" in run.stderr


def test_a_machine_without_apt_is_told_what_is_missing(machine):
    machine.lacks("strace", "apt-get", "apt-cache")
    run = machine.bootstrap()
    assert run.returncode == 1
    assert "missing: strace" in run.stderr


def test_without_node_interop_is_reported_as_skipped_and_the_rest_works(machine):
    machine.lacks("node", "npm")
    run = machine.bootstrap()
    assert run.returncode == 0
    assert "interop tests will be skipped" in run.stderr


def test_a_python_that_is_too_old_is_refused_by_name(machine):
    machine.stand_in("python3.9", "#!/bin/bash\nexit 1\n")
    run = machine.bootstrap(GRIDPOST_PYTHON="python3.9")
    assert run.returncode == 1
    assert "GRIDPOST_PYTHON=python3.9 is not a Python 3.11" in run.stderr


def test_without_any_python_the_distribution_is_asked_for_one_that_fits(machine):
    machine.lacks("python3")
    as_ordinary_user(machine, sudo=False)
    machine.stand_in("apt-cache", '#!/bin/bash\n[ "$2" = python3.12-venv ]\n')
    run = machine.bootstrap()
    assert run.returncode == 1
    assert "python3.12 python3.12-venv python3.12-dev" in run.stderr


def test_the_script_is_executable():
    assert os.access(ROOT / "scripts/bootstrap.sh", os.X_OK)
