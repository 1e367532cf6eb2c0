"""Messages to a program and a webhook: what is sent, and that nothing waits for it."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, TrialState
from results.sweep_folder.trust import require_trust
from results.tracking import Ending
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.positions import Source
from search_spaces.redaction import redact
from tests.tuning.simulate import make_spec
from tests.tuning.sources import sweep
from tuning.controller.preflight.checks import preflight
from tuning.controller.tracking.notify import Notifier

DONE = Ending("FINISHED", {"best_loss": 0.25})
LONGEST_S = 60.0
WEBHOOK = {"webhook": "${SWEEP_WEBHOOK}"}


class Server:
    """A webhook that remembers what it gets, and may hang."""

    def __init__(self) -> None:
        self.got: list[dict[str, str]] = []
        self.release = threading.Event()
        self.release.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                outer.release.wait(LONGEST_S)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}/hook-9f2c41d7"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever)
    thread.start()
    monkeypatch.setenv("SWEEP_WEBHOOK", made.address)
    yield made
    made.release.set()
    made.http.shutdown()
    thread.join()
    made.http.server_close()


def started(**changes: Any) -> Notifier:
    """The notifier of a session that has begun a trial."""
    notifier = Notifier(make_spec(**changes))
    notifier.trial_started(failed(0))
    return notifier


def failed(number: int, error: str = "boom") -> TrialRecord:
    return TrialRecord(
        id=f"t{number:04d}",
        number=number,
        params={},
        config={},
        seed=0,
        created=0.0,
        state=TrialState.FAILED,
        reason=error,
    )


def test_webhook_gets_failures_and_the_end(server: Server) -> None:
    notifier = started(notify=WEBHOOK)
    notifier.trial_ended(failed(0))
    notifier.trial_ended(failed(1).model_copy(update={"state": TrialState.COMPLETED}))
    notifier.session_ended(DONE)
    texts = {got["event"]: got["text"] for got in server.got}
    assert texts == {
        "failure": "simulated: t0000 failed: boom",
        "end": "simulated: done: best_loss 0.25",
    }


def test_many_failures_are_few_messages(server: Server) -> None:
    notifier = started(notify={**WEBHOOK, "on": ["failure"]})
    for number in range(500):
        notifier.trial_ended(failed(number))
    notifier.session_ended(DONE)
    assert 1 <= len(server.got) <= 3
    assert max(got["text"].count("\n") for got in server.got) == 10


def test_hanging_webhook_delays_nothing(server: Server) -> None:
    server.release.clear()
    notifier = started(notify=WEBHOOK)
    start = time.monotonic()
    for number in range(100):
        notifier.trial_ended(failed(number))
    assert time.monotonic() - start < 1.0
    notifier.session_ended(DONE)
    assert time.monotonic() - start < 8.0  # it waits five seconds for the last message


def test_command_gets_its_words_and_variables(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    code = (
        "import json, os, sys; out, *words = sys.argv[1:]; "
        "json.dump([words, os.environ['TUNE_EVENT']], open(out, 'w'))"
    )
    command = [sys.executable, "-c", code, str(out), "{sweep}: {text}", "{other}"]
    notifier = started(notify={"command": command, "on": ["budget"]})
    notifier.session_ended(Ending("KILLED", {}))
    assert not out.exists()
    notifier = started(notify={"command": command, "on": ["budget"]})
    notifier.session_ended(DONE)
    assert json.loads(out.read_text()) == [["simulated: done: best_loss 0.25", "{other}"], "budget"]


def test_failing_command_is_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    notifier = started(notify={"command": ["false"]})
    notifier.session_ended(DONE)
    assert "notify: Command '['false']' returned non-zero exit status 1" in caplog.text


def test_secrets_are_redacted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "kq83-vm20-secret-x1")
    notifier = started(notify=WEBHOOK)
    notifier.trial_ended(failed(0, "401 for kq83-vm20-secret-x1"))
    notifier.session_ended(None)
    assert "kq83" not in str(server.got)
    assert "ended by an error" in str(server.got)


def test_address_is_a_secret_of_the_environment(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sweep(tmp_path, run=False, notify=WEBHOOK)
    assert "webhook: ${SWEEP_WEBHOOK}" in paths.spec.read_text()
    read_spec(paths)
    assert server.address not in redact(f"posting to {server.address}")
    with pytest.raises(ValueError, match="needs the name of a variable"):
        make_spec(notify={"webhook": server.address})


def test_stranger_s_command_is_named_and_needs_trust(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = sweep(tmp_path, run=False, notify={"command": ["rm", "-rf", "a b"]})
    monkeypatch.setenv("TUNE_KEY", "0" * 64)
    with pytest.raises(UserError, match=r"run notify.command rm -rf 'a b'"):
        require_trust(paths, False)


def test_missing_program_is_found_before_the_start() -> None:
    spec = make_spec(
        notify={"command": ["no-such-program-9"]}, space={"dropout": {"uniform": [0.0, 0.5]}}
    )
    loaded = LoadedSweep(spec, Source("x.yaml"), Path("x.yaml"), ())
    with pytest.raises(UserError, match=r"notify.command: no such program"):
        preflight(loaded)


@pytest.mark.parametrize(
    "notify", [{"on": ["end"]}, {"on": []}, {"on": ["never"]}, {"command": []}]
)
def test_mistakes_of_the_section(notify: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="notify"):
        make_spec(notify=notify)


def test_session_without_trials_has_no_message(server: Server) -> None:
    Notifier(make_spec(notify=WEBHOOK)).session_ended(DONE)
    assert server.got == []
