"""The same commands on a Spark Connect server and on a standalone cluster give the same tables.

Starting them takes long: in full runs only (`make soak`), or bronze alone with GRIDPOST_ELSEWHERE=1.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from gridpost.bench._journals import Journals, generate
from gridpost.pipeline.build import BuildSettings
from gridpost.pipeline.lake import Lake
from gridpost.transports.free_port import free_port
from support.child import environment

from .conftest import pipeline_at
from .places import full_run
from .test_faults import contents, everything, keys

pytestmark = pytest.mark.timeout(1800)
SPARK = Path(pyspark.__file__).parent
CLI = [sys.executable, "-c", "from gridpost.cli import main; main()"]


@pytest.fixture(autouse=True)
def _only_in_full() -> None:
    if not full_run() and "GRIDPOST_ELSEWHERE" not in os.environ:
        pytest.skip("in full runs only: GRIDPOST_SCALE=1")


@pytest.fixture(scope="module")
def journals() -> Journals:
    return generate(5, 20, days=2)


def spark_environment() -> dict[str, str]:
    return {
        **environment(),
        "SPARK_HOME": str(SPARK),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_NO_DAEMONIZE": "1",
    }


@contextmanager
def process(*command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        running = subprocess.Popen(
            command, env=spark_environment(), stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield running
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def listening(port: int, log: Path) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError(log.read_text())


def command(lake: Lake, *words: str) -> dict:
    """Spark gives a Python worker ten seconds to start; on a busy machine the command is run again."""
    end = time.monotonic() + 1200
    while True:
        run = subprocess.run(
            [*CLI, "pipeline", *words, "--lake", str(lake.root), "--json"],
            env=spark_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if "Python worker failed to connect back" not in run.stderr or time.monotonic() > end:
            break
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def same_tables(journals: Journals, spark, tmp_path: Path, *where: str) -> int:
    """How many there are."""
    here = pipeline_at(tmp_path / "here", spark)
    there = Lake.open(tmp_path / "there", create=True)
    # With the same key names of people are the same hashes.
    (there.root / "keys/pseudonyms").write(here.lake.secret("pseudonyms"))
    for lake in (here.lake, there):
        journals.land(lake.landing, segment_rows=60)
    here.ingest()
    command(there, "ingest", *where)
    assert keys(there) == everything(journals)
    assert bronze(there) == bronze(here.lake)
    if not full_run():
        return 1
    here.build(BuildSettings())
    command(there, "build", *where)
    here.verify(BuildSettings())
    command(there, "verify", *where)
    one, other = contents(here.lake), contents(there)
    assert set(one) == set(other)
    assert len(one) > 15
    for name in one:
        assert one[name] == other[name], name
    return len(one)


def bronze(lake: Lake) -> list[str]:
    rows = lake.table("bronze", "journal").read().drop_columns(["stream", "batch"])
    return sorted(map(repr, rows.to_pylist()))


def test_a_spark_connect_server_gives_the_same_tables(journals, spark, soak, tmp_path):
    port, log = free_port(), tmp_path / "server.log"
    with process(
        str(SPARK / "bin/spark-submit"),
        *("--master", "local[2]", "--conf", f"spark.connect.grpc.binding.port={port}"),
        *("--conf", "spark.ui.enabled=false", "--driver-memory", "2g"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
        log=log,
    ):
        listening(port, log)
        soak.report(
            tables=same_tables(journals, spark, tmp_path, "--remote", f"sc://127.0.0.1:{port}")
        )


def test_a_standalone_cluster_gives_the_same_tables(journals, spark, soak, tmp_path):
    port, web = free_port(), free_port()
    log = tmp_path / "master.log"
    master = f"spark://127.0.0.1:{port}"
    run = str(SPARK / "bin/spark-class")

    def worker(name: str):
        return process(
            run,
            "org.apache.spark.deploy.worker.Worker",
            *("-c", "1", "-m", "1g", "--webui-port", "0", "-d", str(tmp_path / name), master),
            log=tmp_path / f"{name}.log",
        )

    with (
        process(
            run,
            "org.apache.spark.deploy.master.Master",
            *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)),
            log=log,
        ),
        worker("w1"),
        worker("w2"),
    ):
        listening(port, log)
        soak.report(tables=same_tables(journals, spark, tmp_path, "--master", master))


def test_kill_9_of_the_driver_at_any_time_loses_nothing(journals, soak, tmp_path):
    import random

    if not full_run():
        pytest.skip("in full runs only: GRIDPOST_SCALE=1")

    draw = random.Random(soak.seed)
    options = ("--max-files", "3", "--master", "local[1]", "--json")

    def landed(name: str) -> Lake:
        lake = Lake.open(tmp_path / name, create=True)
        journals.land(lake.landing, segment_rows=15)
        return lake

    whole = landed("whole")
    started = time.monotonic()
    command(whole, "ingest", *options[:-1])
    takes = time.monotonic() - started
    kills = 0
    for number in range(soak.scale(8)):
        lake = landed(f"killed-{number}")
        running = subprocess.Popen(
            [*CLI, "pipeline", "ingest", "--lake", str(lake.root), *options],
            env=spark_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            running.wait(takes * draw.uniform(0.4, 1))
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
            kills += 1
        assert set(keys(lake).values()) <= {1}
        command(lake, "ingest", "--master", "local[1]")
        assert keys(lake) == everything(journals)
    assert kills
    soak.report(kills=kills, rows=sum(everything(journals).values()))
