"""What is tracked, what must never be, and that the parts of the tool chain agree with each other."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()]


def texts(files: list[Path]) -> list[tuple[Path, str]]:
    return [(file, (ROOT / file).read_text(encoding="utf-8", errors="replace")) for file in files]


def requirements() -> list[str]:
    """The lock's entries, each with its continuation lines."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    return [entry for entry in re.split(r"\n(?=[a-z])", text) if entry[0].isalpha()]


def test_every_locked_requirement_has_a_version_and_hashes():
    assert len(requirements()) > 50
    for entry in requirements():
        name = entry.split()[0]
        assert re.match(r"[a-z0-9][a-z0-9.\[\]-]*==\S+", name), name
        assert "--hash=sha256:" in entry, name


def test_the_lock_names_no_address_and_no_path():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in text
    assert "--find-links" not in text
    assert "index-url" not in text
    assert "(pyproject.toml)" in text


def test_the_lock_covers_every_runtime_dependency_and_every_extra():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = list(project["dependencies"])
    for dependencies in project["optional-dependencies"].values():
        wanted += dependencies
    locked = {re.split(r"[=\[]", entry)[0] for entry in requirements()}
    missing = {re.split(r"[\[<>=~! ]", line)[0] for line in wanted} - locked
    assert missing == set()


def test_npm_packages_are_locked_without_addresses():
    assert "://" not in (ROOT / "tests/interop/package-lock.json").read_text()
    assert "://" not in (ROOT / "tests/interop/.npmrc").read_text()


def test_no_lock_that_embeds_a_registry_and_no_key_material_is_tracked(tracked):
    assert not [file for file in tracked if file.name in {"uv.lock", "poetry.lock"}]
    keys = {".pem", ".key", ".p12", ".pfx", ".jks"}
    assert not [file for file in tracked if file.suffix in keys]


def test_no_path_of_a_machine_is_tracked(tracked):
    machine = re.compile(r"(?<![\w./-])/(?:home|root|work|farm|Users|opt/wheels)/\w")
    found = [(file, m[0]) for file, text in texts(tracked) if (m := machine.search(text))]
    assert found == []


def test_nothing_that_is_tracked_promises_to_be_written_later(tracked):
    # Written with brackets, or this file would find itself.
    placeholder = re.compile("[T]ODO|[F]IXME|coming [s]oon|lorem [i]psum", re.IGNORECASE)
    words = [file for file in tracked if file.suffix in {".md", ".py", ".sh", ".toml", ".yml"}]
    assert [file for file, text in texts(words) if placeholder.search(text)] == []


def test_ci_runs_check_and_test_and_nothing_else():
    file = ROOT / ".ci/run"
    assert os.access(file, os.X_OK)
    lines = file.read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    commands = [line for line in lines if line and not line.startswith("#")]
    assert commands[0] == "set -euo pipefail"
    assert commands[1].startswith('cd "$(dirname')
    assert commands[2:] == ["make check", "make test"]


@pytest.mark.parametrize(
    "target", ["demo", "test", "check", "bench", "soak", "conformance", "docs"]
)
def test_every_target_sets_the_machine_up_first(target):
    # `make test` runs this test: an inner make must not think it is part of the outer one.
    environment = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    plan = subprocess.run(
        ["make", "--dry-run", target],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert plan.splitlines()[0] == "scripts/bootstrap.sh"


def test_the_wheel_holds_data_files_as_well(tmp_path):
    """Schemas are read at run time: a wheel without them would fail only at the user's."""
    import zipfile

    from hatchling.builders.wheel import WheelBuilder

    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    names = set(zipfile.ZipFile(wheel).namelist())
    data = [
        file.relative_to(ROOT / "src").as_posix()
        for file in (ROOT / "src/gridpost").rglob("*")
        if file.suffix in {".xsd", ".wsdl", ".typed", ".html", ".css", ".js", ".svg", ".txt"}
    ]
    assert data
    assert set(data) <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
