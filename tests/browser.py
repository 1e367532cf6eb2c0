"""A page in a real browser, without a window, looked at once it says that it is ready."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
_MOVE = "import os, sys; os.dup2({}, 3); os.dup2({}, 4); os.execvp(sys.argv[1], sys.argv[1:])"


class Browser:
    """Chromium, driven by the DevTools protocol over a pipe: no port, no driver program.

    Args:
        profile: a folder of its own.
        width, height: of the window, in pixels.
    """

    def __init__(self, profile: Path, width: int = 1200, height: int = 2000) -> None:
        (theirs, self._to), (self._from, answers) = os.pipe(), os.pipe()
        # high numbers, of which the new process makes 3 and 4, as Chromium expects
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs, answers)]
        given = ["--remote-debugging-pipe", f"--user-data-dir={profile}"]
        command = ["chromium", *FLAGS, *given, f"--window-size={width},{height}"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MOVE.format(*ends), *command],
            pass_fds=ends,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs, answers, *ends):
            os.close(end)
        self._number, self._rest, self._session = 0, b"", ""

    def __enter__(self) -> Browser:
        """Start with an empty page."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        found = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]
        return self

    def __exit__(self, *error: object) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def visit(self, address: str, ready: str, longest_s: float = 100.0) -> str:
        """The page's HTML as soon as an expression in JavaScript is true there."""
        self._call("Page.navigate", url=address)
        deadline = time.monotonic() + longest_s
        while not self.value(f"Boolean({ready})"):
            assert time.monotonic() < deadline, self.value("document.body.outerHTML")
            time.sleep(0.1)
        return str(self.value("document.body.outerHTML"))

    def value(self, expression: str) -> Any:
        """What an expression in JavaScript gives in the page."""
        found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        return found["result"].get("value")

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        asked: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._from, 1 << 20)
            assert read, "the browser ended"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        return told
