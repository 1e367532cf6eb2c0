"""A sweep folder that another user made: it is read, and nothing else happens without consent."""

from __future__ import annotations

import hashlib
import os
import pty
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuning
from results.paths import SweepPaths
from results.sweep_folder.copies.restore import restore_sweep
from results.sweep_folder.trust import is_trusted
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from search_spaces.redaction import redact
from search_spaces.spec.sweep import SweepSpec
from tests.cli.conftest import Tune
from tests.cli.trained import DIGITS, trained
from tests.tuning.simulate import make_spec, new_sweep
from tests.tuning.sources import warm_start
from tuning.controller.session import open_sweep
from tuning.controller.sweep_dir.amend import amend_sweep

TOKEN, PASSWORD = "token-of-the-reader-5d1e", "password-of-the-reader-77ab"
EVIL = """
from trainables.digits.config import Digits
from pathlib import Path
Path({canary!r}).write_text("ran")
class Evil(Digits):
    "Shows that it was imported."
"""
CODE: dict[str, list[str]] = {
    "resume": ["--set", "budget.trials=3"],
    "average": ["--trials", "t0000,t0001", "--method", "uniform"],
    "export": ["--trial", "t0000", "--to", "onnx", "--no-verify"],
    "evaluate": ["--tasks", "./t.yaml"],
    "generate": ["--prompt", "a"],
    "predict": ["--trial", "t0000", "--input", "rows.npy"],
    "reproduce": ["t0000"],
    "best": ["--confirm", "1", "--reevaluate"],
}
CONTACT: dict[str, list[str]] = {"sync": [], "fetch": ["t0000"], "ui": ["--no-browser"]}


@dataclass
class Server:
    """What was asked of a server on this machine."""

    address: str
    seen: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def listening() -> Iterator[Server]:
    class Recorder(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            server.seen.append(f"{self.path}\n{self.headers}")
            self.send_error(404)

        do_GET = do_POST = do_PUT = do_HEAD = _answer

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as http:
        server = Server(f"127.0.0.1:{http.server_port}")
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield server
        http.shutdown()


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory, listening: Server) -> SweepPaths:
    """A trained sweep of a stranger, whose code and addresses wait for a reader."""
    folder = tmp_path_factory.mktemp("stranger")
    evil = folder / "evil.py"
    evil.write_text(EVIL.format(canary=str(folder / "canary")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        patch.setenv("HF_TOKEN", "token-of-the-stranger")
        patch.chdir(folder)
        mirror = f"s3://bucket/far?endpoint_override={listening.address}&scheme=http&region=x"
        return trained(
            DIGITS,
            trainable=f"{evil}:Evil",
            tracking={"uri": f"http://{listening.address}/${{HF_TOKEN}}"},
            checkpoint={"mirror": mirror},
        )


@dataclass
class Reader:
    """A user on another machine, who has received the folder as ./sweeps/received."""

    tune: Tune
    paths: SweepPaths
    canary: Path
    server: Server

    def effects(self) -> set[str]:
        """What has happened since the last call."""
        found = {"contacted"} if self.server.seen else set()
        found |= {"sent a secret"} if any(TOKEN in one for one in self.server.seen) else set()
        found |= {"ran"} if self.canary.exists() else set()
        self.server.seen.clear()
        self.canary.unlink(missing_ok=True)
        for name in [n for n in sys.modules if n.startswith("_loop_evil")]:
            del sys.modules[name]  # as in a new process
        return found

    def digest(self) -> dict[str, str]:
        files = (p for p in self.paths.root.rglob("*") if p.is_file())
        return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}

    def try_to(self, *args: str) -> None:
        """Run a command whose success is not the point: the recorder is no real server."""
        with suppress(Exception):
            self.tune(*args)


@pytest.fixture
def reader(
    tune: Tune, sent: SweepPaths, listening: Server, monkeypatch: pytest.MonkeyPatch
) -> Reader:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tune.cwd / "config"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "reader")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", PASSWORD)
    for name, value in {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", PASSWORD)
    paths = SweepPaths(tune.cwd / "sweeps" / "received")
    shutil.copytree(sent.root, paths.root)
    np.save(tune.cwd / "rows.npy", np.zeros((1, 64), np.float32))
    found = Reader(tune, paths, sent.storage.root.parent / "canary", listening)
    found.effects()
    return found


@pytest.mark.parametrize("command", [*CODE, *CONTACT])
def test_command_refuses_a_foreign_folder(reader: Reader, command: str) -> None:
    before = reader.digest()
    said = reader.tune.refused(command, "received", *{**CODE, **CONTACT}[command])
    assert f"{reader.paths.root}: another user or machine made it" in said
    assert "evil.py:Evil; contact tracking.uri http://127.0.0.1:" in said
    assert "/${HF_TOKEN} (with HF_TOKEN, MLFLOW_TRACKING_PASSWORD of your environment)" in said
    assert "contact checkpoint.mirror s3://bucket/far?" in said
    assert "(with AWS_SECRET_ACCESS_KEY of your environment)" in said
    assert "add --trust" in said
    assert not {TOKEN, PASSWORD} & {*said.split()}
    assert reader.effects() == set()
    assert reader.digest() == before


@pytest.mark.slow
@pytest.mark.parametrize("command", CODE)
def test_trusted_folder_runs_its_code(reader: Reader, command: str) -> None:
    reader.try_to(command, "received", *CODE[command], "--trust")
    assert "ran" in reader.effects()


@pytest.mark.parametrize("command", CONTACT)
def test_trusted_folder_is_contacted(reader: Reader, command: str) -> None:
    reader.try_to(command, "received", *CONTACT[command], "--trust")
    assert reader.effects() >= {"contacted"} | ({"sent a secret"} if command != "fetch" else set())


def test_trust_is_remembered_until_the_file_changes(reader: Reader) -> None:
    best = ["best", "received", "--confirm", "1", "--reevaluate"]
    reader.tune(*best, "--trust")
    reader.effects()
    reader.tune(*best)
    assert reader.effects() == {"ran"}
    text = reader.paths.spec.read_text().partition("\n")[2]  # without its checksum
    reader.paths.spec.write_text(text.replace("/${HF_TOKEN}", "/other/${HF_TOKEN}"))
    assert "/other/${HF_TOKEN}" in reader.tune.refused(*best)
    assert reader.effects() == set()


@pytest.mark.parametrize(
    "args",
    [
        ["ls"],
        ["show", "received"],
        ["show", "received", "t0000"],
        ["best", "received"],
        ["report", "received"],
        ["compare", "received", "again"],
    ],
    ids=" ".join,
)
def test_foreign_folder_is_read_without_its_environment(
    reader: Reader, args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    shutil.copytree(reader.paths.root, reader.paths.root.with_name("again"))
    reader.tune(*args)
    assert reader.effects() == set()


def test_warm_start_reads_a_foreign_folder(reader: Reader) -> None:
    paths = new_sweep(make_spec(name="mine", **warm_start("received")))
    with open_sweep(paths, load_sweep(paths.spec).spec):
        assert paths.evidence.is_file()
    assert reader.effects() == set()


def test_own_folder_needs_no_consent_after_a_change(tune: Tune) -> None:
    paths = new_sweep(SweepSpec.model_validate(DIGITS))
    assert amend_sweep(paths, "+1", None, ["description=changed"])
    moved = SweepPaths(tune.cwd / "moved")
    shutil.move(paths.root, moved.root)
    assert is_trusted(moved)


@pytest.mark.parametrize("how", ["TUNE_KEY", "TUNE_KEY_FILE"])
def test_owner_resumes_unattended_on_another_machine(
    tune: Tune, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tune.write("secret", "key-of-the-owner-91d2\n")
    monkeypatch.setenv(how, str(secret) if how.endswith("FILE") else secret.read_text().strip())
    tune.sweep("mine")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tune.cwd / "another-machine"))
    tune("resume", "mine")
    monkeypatch.setenv("TUNE_KEY", "another-key-8f3301")
    assert "another user or machine made it" in tune.refused("resume", "mine")
    assert redact("with another-key-8f3301") == "with ***"
    monkeypatch.setenv("TUNE_KEY", "short")
    assert "TUNE_KEY: the key of sweeps needs 16 characters" in tune.refused("resume", "mine")


def test_key_is_private_and_made_once(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tune.cwd / "config"))
    tune.sweep("mine", done=False)
    key = tune.cwd / "config" / "tune" / "key"
    made = key.read_bytes()
    assert oct(key.stat().st_mode & 0o777) == "0o600"
    tune.sweep("other", done=False)
    assert key.read_bytes() == made
    assert [p.name for p in key.parent.iterdir()] == ["key"]


def test_resume_of_a_lost_state_needs_consent_once(tune: Tune) -> None:
    paths = tune.sweep("mine")
    paths.state.unlink()
    assert "is missing or damaged" in tune("resume", "mine", code=3).err
    with pytest.raises(UserError, match="add --trust"):
        tuning.resume(str(paths.root))
    tuning.resume(str(paths.root), trust=True)
    tune("resume", "mine")


def test_driver_killed_within_a_change_stays_the_owner(tune: Tune) -> None:
    paths = new_sweep(SweepSpec.model_validate(DIGITS))
    old = paths.spec.read_bytes()
    assert amend_sweep(paths, "+1", None, ())
    paths.spec.write_bytes(old)  # as if it was killed before it replaced the file
    assert is_trusted(paths)
    paths.spec.write_bytes(old.replace(b"digits", b"evil.py:Evil"))
    assert not is_trusted(paths)


def test_restored_folder_contacts_only_what_its_user_named(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = reader.tune.cwd / "far" / "received" / "records"
    shutil.copytree(reader.paths.root, copy)
    shutil.rmtree(reader.paths.root)
    address = copy.parent.as_uri()
    assert "another user or machine made it" in reader.tune.refused("resume", address)
    assert reader.effects() == set()
    shutil.rmtree(reader.paths.root)
    assert len(restore_sweep(address, None).trial_ids()) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "effects"), [("n", set()), ("y", {"contacted"})], ids=["n", "y"]
)
def test_person_at_the_terminal_is_asked(reader: Reader, answer: str, effects: set[str]) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tuning", "fetch", "received", "t0000"]
    pipes: dict[str, Any] = {"stdin": theirs, "stderr": theirs, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=reader.tune.cwd, **pipes) as process:
        os.close(theirs)
        question = b""
        while b"[y/N]" not in question:
            question += os.read(ours, 4096)
        assert b"evil.py:Evil" in question
        os.write(ours, f"{answer}\n".encode())
        process.communicate(timeout=200)
    os.close(ours)
    assert reader.effects() == ({"contacted"} if answer == "y" else set())
