"""The import contracts of pyproject.toml catch what they are there to catch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def lint(tmp_path: Path):
    """Runs lint-imports over a copy of the package with some files added."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    package = tmp_path / "src/gridpost"
    shutil.copytree(
        ROOT / "src/gridpost", package, ignore=shutil.ignore_patterns("__pycache__", "*.xsd")
    )

    def lint(files: dict[str, str]) -> tuple[int, str]:
        for name, text in files.items():
            file = package / name
            file.parent.mkdir(parents=True, exist_ok=True)
            for folder in [file.parent, *file.parent.parents]:
                if folder == package:
                    break
                (folder / "__init__.py").touch()
            with file.open("a") as out:
                out.write(f"\n{text}\n")
        run = subprocess.run(
            [Path(sys.executable).parent / "lint-imports", "--no-cache"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": "src"},
            capture_output=True,
            text=True,
            check=False,
        )
        return run.returncode, run.stdout

    return lint


@pytest.mark.parametrize(
    ("files", "broken"),
    [
        ({"core/x.py": "import gridpost.wire"}, "Each layer knows only"),
        ({"wire/x.py": "import gridpost.stores"}, "Each layer knows only"),
        (
            {"services/endpoint/x.py": "import gridpost.stores"},
            "Each layer knows only",
        ),
        ({"surprise/x.py": ""}, "Each layer knows only"),
        (
            {"services/endpoint/x.py": "", "client/x.py": "import gridpost.services.endpoint"},
            "Packages for applications",
        ),
        (
            {
                "services/broker/x.py": "",
                "services/endpoint/x.py": "import gridpost.services.broker",
            },
            "Components do not know each other",
        ),
        ({"transports/x.py": "import proton"}, "Only transports.amqp10"),
        ({"transports/x.py": "import aio_pika"}, "Only transports.amqp091"),
        ({"services/bus/x.py": "import pyspark.sql"}, "Only the pipeline"),
        ({"services/broker/x.py": "import sqlite3"}, "Only stores"),
        ({"console/x.py": "import pyarrow.parquet"}, "Only stores"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(lint, files, broken):
    code, output = lint(files)
    assert code == 1
    assert [line for line in output.splitlines() if line.startswith(broken) and "BROKEN" in line]


def test_imports_in_their_one_home_are_allowed(lint):
    code, output = lint(
        {
            "stores/x.py": "import sqlite3, psycopg, pyarrow.parquet",
            "transports/amqp10/x.py": "import proton, cproton",
            "transports/amqp091/x.py": "import aio_pika",
            "pipeline/lake.py": "import pyarrow.parquet",
            "pipeline/jobs.py": "import pyspark.sql",
            "services/endpoint/x.py": "import gridpost.services.directory_client.x",
            "services/directory_client/x.py": "import gridpost.services.operations.x",
            "services/operations/x.py": "import gridpost.core.ports",
            "client/x.py": "import gridpost.transports.amqp10.x",
            "assembly/x.py": "import gridpost.stores.x, gridpost.services.endpoint.x",
        }
    )
    assert code == 0, output
