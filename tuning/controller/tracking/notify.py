"""Sends messages about a sweep to a program or a webhook, in a thread that nothing waits for."""

from __future__ import annotations

import json
import logging
import os
import queue
import re
import subprocess
import threading
import urllib.request
from functools import partial

from results.records.trial import TrialRecord, TrialState
from results.tracking import Ending
from search_spaces.redaction import redact
from search_spaces.spec.env_vars import expand_now
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.events import SweepEvents

_TIMEOUT_S, _LAST_S, _PAUSE_S = 10.0, 5.0, 60.0
"""Limits of one message, and of all that are left when the session ends; seconds between two."""
_MOST_LINES = 10

log = logging.getLogger(__name__)


class Notifier(SweepEvents):
    """Sends the messages that the sweep's `notify` section asks for.

    A minute's failures are one message. A message that cannot be sent is a line of the log.

    Args:
        spec: of the sweep; the session trusts it.
        pause_s: seconds between two messages.
    """

    def __init__(self, spec: SweepSpec, pause_s: float = _PAUSE_S) -> None:
        self._name, self._spec, self._pause_s = spec.name, spec.notify, pause_s
        self._waiting: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._ran = False

    def trial_started(self, record: TrialRecord) -> None:
        """A session without trials, as of a sweep that is done, has no message."""
        self._ran = True

    def trial_ended(self, record: TrialRecord) -> None:
        """A trial that failed for good is a message."""
        if record.state is TrialState.FAILED:
            self._send("failure", f"{record.id} failed: {record.last_error}")

    def session_ended(self, ending: Ending | None) -> None:
        """Send the end, and wait a moment for what is left."""
        if ending is not None and not self._ran:
            return
        status = ending.status if ending else "FAILED"
        values = ", ".join(f"{k} {v:.4g}" for k, v in ending.metrics.items()) if ending else ""
        text = _ENDS.get(status, status)
        if values:
            text += f": {values}"
        if status == "FINISHED":
            self._send("budget", text)
        self._send("end", text)
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_LAST_S)
            if self._thread.is_alive():
                log.warning("notify: not sent in %g s: %s", _LAST_S, text)

    def _send(self, event: str, text: str) -> None:
        if event not in self._spec.on or not (self._spec.command or self._spec.webhook):
            return
        self._waiting.put((event, text))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not (self._ended.is_set() and self._waiting.empty()):
            try:
                found = [self._waiting.get(timeout=0.1)]
            except queue.Empty:
                continue
            while not self._waiting.empty():
                found.append(self._waiting.get())
            for event in dict.fromkeys(event for event, _ in found):
                self._deliver(event, [text for other, text in found if other == event])
            self._ended.wait(self._pause_s)

    def _deliver(self, event: str, texts: list[str]) -> None:
        more = len(texts) - _MOST_LINES
        lines = [*texts[:_MOST_LINES], *([f"and {more} more"] if more > 0 else [])]
        values = {"event": event, "sweep": self._name, "text": redact("\n".join(lines))}
        for send in (self._call, self._post):
            try:
                send(values)
            except Exception as e:  # noqa: BLE001 - a message must not end the sweep
                log.warning("notify: %s", redact(str(e)))

    def _call(self, values: dict[str, str]) -> None:
        if self._spec.command:
            # other braces than those of the placeholders stay
            fill = partial(re.sub, r"\{(\w+)\}", lambda match: values.get(match[1], match[0]))
            subprocess.run(
                [fill(word) for word in self._spec.command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_TIMEOUT_S,
                check=True,
                env={**os.environ, **{f"TUNE_{k.upper()}": v for k, v in values.items()}},
            )

    def _post(self, values: dict[str, str]) -> None:
        if self._spec.webhook:
            line = f"{values['sweep']}: {values['text']}"
            body = json.dumps({**values, "text": line, "content": line}).encode()
            request = urllib.request.Request(
                expand_now("notify.webhook", self._spec.webhook),
                data=body,
                headers={"Content-Type": "application/json"},
            )
            urllib.request.urlopen(request, timeout=_TIMEOUT_S).close()


_ENDS = {"FINISHED": "done", "KILLED": "paused or interrupted", "FAILED": "ended by an error"}
