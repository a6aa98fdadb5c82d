"""A MADES 1.1 node as a process of its own; `start` and `kill` as often as a test likes."""

from __future__ import annotations

import signal
import subprocess
import threading
from base64 import b64encode
from typing import Any

import httpx

from gridpost.assembly.operations_token import bearer
from gridpost.wire.x509 import public_key_bytes
from support.directory_process import GRIDPOST, environment, wait_for
from support.old_network import CONTACT, KINDS, OldEndpoint, TestNode, issued
from support.pki import rsa_key


class NodeProcess(TestNode):
    process: subprocess.Popen[str] | None = None

    def start(self) -> NodeProcess:
        self.log: list[str] = getattr(self, "log", [])
        self.process = subprocess.Popen(
            [*GRIDPOST, "node", "run", "--config", str(self.file)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=environment(),
            text=True,
        )
        threading.Thread(target=self._collect, args=(self.process,), daemon=True).start()
        wait_for(self._answers, 240)
        return self

    def _collect(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            self.log += process.stderr

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "".join(self.log)
        return httpx.get(f"http://127.0.0.1:{self.operations_port}/health").is_success

    def kill(self, number: int = signal.SIGKILL) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        self.process.wait(60)

    def tell(self, action: str, **form: Any) -> Any:
        url = f"http://127.0.0.1:{self.operations_port}/{action}"
        headers = bearer(self.configuration.home)
        answer = httpx.post(url, json={"by": "test"} | form, timeout=60, headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    def new_endpoint(self, code: str) -> OldEndpoint:
        keys = {kind: rsa_key(f"{code} {kind}") for kind in KINDS}
        form = {
            kind.value.lower(): {
                "is": "key",
                "der": b64encode(public_key_bytes(key.public_key())).decode(),
            }
            for kind, key in keys.items()
        }
        told = self.tell("register", **(form | CONTACT | {"code": code, "mversion": 1}))
        return OldEndpoint(code, self, keys, issued(told))
