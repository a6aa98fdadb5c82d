"""A business application that knows nothing but folders: it writes, renames, reads and removes.

    folder_application.py send OUT NAME CONTENT [NAME CONTENT ...]
    folder_application.py many OUT PREFIX COUNT          PREFIX_E2_F01_<n>.xml, each with its own text
    folder_application.py receive IN COUNT SECONDS       prints {name: content}; removes the files

Run as a process of its own: it shares no code with the endpoint.
"""

import json
import os
import sys
import time
from pathlib import Path


def put(folder: Path, name: str, content: bytes) -> None:
    stem = name.rsplit(".", 1)[0]
    temporary = folder / f"{stem}.tmp"
    with temporary.open("wb") as file:
        half = len(content) // 2
        file.write(content[:half])
        file.flush()
        file.write(content[half:])
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / name)


def receive(folder: Path, count: int, seconds: float) -> dict[str, str]:
    found: dict[str, str] = {}
    end = time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        for entry in sorted(folder.iterdir()):
            if entry.suffix not in (".tmp", ".TMP"):
                assert entry.name not in found, f"{entry.name} came twice"
                found[entry.name] = entry.read_bytes().decode()
                entry.unlink()
        time.sleep(0.02)
    return found


def main() -> None:
    what, folder, *rest = sys.argv[1:]
    if what == "send":
        for name, content in zip(rest[::2], rest[1::2], strict=True):
            put(Path(folder), name, content.encode())
    elif what == "many":
        prefix, count = rest
        for n in range(int(count)):
            put(Path(folder), f"{prefix}_E2_F01_{n}.xml", f"{prefix} {n}".encode())
    else:
        count, seconds = rest
        print(json.dumps(receive(Path(folder), int(count), float(seconds))))


main()
