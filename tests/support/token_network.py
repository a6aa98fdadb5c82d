"""An endpoint whose signing key is in a token, registered with a directory that runs.

In a process of its own: the library of a token reads its settings once.
"""

from __future__ import annotations

import asyncio
import sys

from support.network import Network, Running, environment

ENROL = """import sys
from pathlib import Path
from gridpost.assembly.administration_client import AdministrationClient
from gridpost.assembly.directory_configuration import read_directory_configuration
from gridpost.assembly.network import Placed
from gridpost.demo.enrolment import enrol
directory, token, file, code = sys.argv[1:]
section = read_directory_configuration(Path(directory)).administration
enrol(AdministrationClient(section, token), Placed("endpoint", code, Path(file), {}))
"""


async def ended(*command: str) -> tuple[int | None, str]:
    """Its exit code, and what it said."""
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, env=environment()
    )
    _, err = await process.communicate()
    return process.returncode, err.decode()


async def register(net: Network, running: Running, code: str) -> tuple[int | None, str]:
    return await ended(
        sys.executable, "-c", ENROL, str(net.directory.file), net.token, str(running.file), code
    )
