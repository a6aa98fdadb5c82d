"""A large document passes through the SOAP channel without being held several times in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.soak import Soak

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
MIB = 1024 * 1024


@pytest.mark.soak
def test_a_large_document_is_held_once_on_its_way_in_and_out(tmp_path: Path, soak: Soak) -> None:
    size = max(32, soak.scale(256)) * MIB
    search = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, str(HERE / "soap_memory.py"), str(size), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    grown = json.loads(done.stdout.splitlines()[-1])
    soak.report(document_mib=size // MIB, **{f"{way} (ratio)": grown[way] for way in grown})
    # The document itself is one; as base64 text it would be 1.33 more.
    assert 0.9 < grown["in"] < 1.35
    assert 0.9 < grown["out"] < 1.35
