from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from results.records.failures import Cause, Remedy, classify
from results.records.trial import read_reports
from results.trial_paths import TrialPaths
from tests.metadata_server import MetadataServer, metadata_server
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import (
    RecordingChannel,
    make_worker,
    newest_checkpoint,
    run_trial,
    without_timing,
)
from trainables.digits.task import DigitsTask
from trainables.launch.errors import error_line
from trainables.runtime.preemption import (
    GRACE_S,
    Preempted,
    cloud_here,
    install_sigterm_handler,
    install_sigterm_handler_deferred,
    preemption_requested,
    read_notice,
)
from trainables.training.run import TrainingRun


@pytest.fixture
def restore_handler() -> Iterator[Callable[[], None]]:
    """Install the SIGTERM handler; gives the function that restores the old one."""
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a command of another test may set one
    restore = install_sigterm_handler()
    yield restore
    restore()
    signal.signal(signal.SIGTERM, before)


def save(folder: Path) -> None:
    (folder / "model.safetensors").write_text("weights")


def test_sigterm_leaves_at_the_next_report_with_a_checkpoint(
    tmp_path: Path, restore_handler: Callable[[], None]
) -> None:
    channel = RecordingChannel()
    worker = make_worker(tmp_path, channel=channel, checkpoint_every=100)
    worker.report(step=1, metrics={}, checkpoint=save)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(Preempted, match="left after step 2") as e:
        worker.report(step=2, metrics={}, checkpoint=save)
    worker.close()
    assert newest_checkpoint(tmp_path).step == 2
    failure = classify(f"rank 0: {error_line(e.value)}")
    assert (failure.remedy, failure.cause) == (Remedy.RETRY, Cause.PREEMPTION)
    with pytest.raises(Preempted):  # no trial starts here any more
        make_worker(tmp_path, attempt=2).resume()


def test_sigterm_at_the_final_report_ends_the_trial(
    tmp_path: Path, restore_handler: Callable[[], None]
) -> None:
    worker = make_worker(tmp_path)
    os.kill(os.getpid(), signal.SIGTERM)
    worker.report(step=1, metrics={}, checkpoint=save, final=True)
    assert TrialPaths(tmp_path).checkpoint_steps() == [1]


@pytest.mark.parametrize(
    ("owner", "phase"),
    [(DigitsTask, "new_model"), (TrainingRun, "advance"), (DigitsTask, "evaluate")],
)
def test_sigterm_in_each_phase_resumes_bit_for_bit(
    tmp_path: Path, owner: type, phase: str, restore_handler: Callable[[], None]
) -> None:
    config = EXAMPLES["digits"].config
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, phase, told_to_go_in(getattr(owner, phase)))
        with pytest.raises(Preempted, match="left after step 1"):
            run_trial(tmp_path / "t", "digits", config)
    assert TrialPaths(tmp_path / "t").checkpoint_steps() == [1]
    restore_handler()  # the trial resumes elsewhere
    run_trial(tmp_path / "t", "digits", config, attempt=2)
    whole = run_trial(tmp_path / "whole", "digits", config)
    curve = {r.step: without_timing(r.metrics) for r in read_reports(TrialPaths(tmp_path / "t"))}
    assert curve == whole.curve


def told_to_go_in(phase: Callable[..., Any]) -> Callable[..., Any]:
    """A phase of training that receives one SIGTERM; a second one would end the process."""

    def told(*args: Any, **options: Any) -> Any:
        if not preemption_requested():
            os.kill(os.getpid(), signal.SIGTERM)
        return phase(*args, **options)

    return told


def test_second_sigterm_meets_the_old_handler(restore_handler: Callable[[], None]) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    assert preemption_requested()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_sigterm_handler_is_installed_from_another_thread(
    restore_handler: Callable[[], None],
) -> None:
    os.kill(os.getpid(), signal.SIGTERM)  # uses up the fixture's handler
    thread = threading.Thread(target=install_sigterm_handler_deferred)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataServer]:
    with metadata_server() as made:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"{made.url}/")
        monkeypatch.setenv("GCE_METADATA_HOST", made.url.removeprefix("http://"))
        monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", made.url)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # not asked
        yield made


@pytest.mark.parametrize(
    ("cloud", "said"),
    [
        ("aws", "AWS: terminate at 2026-11-24T12:00:00Z"),
        ("gcp", "Google: preempted"),
        ("azure", "Azure: Preempt not before soon"),
    ],
)
def test_notice_is_read_once_it_is_there(server: MetadataServer, cloud: str, said: str) -> None:
    assert read_notice(cloud) is None
    server.is_over = True
    assert read_notice(cloud) == said


@pytest.mark.parametrize("cloud", GRACE_S)
def test_server_that_cannot_be_reached_is_an_error(
    monkeypatch: pytest.MonkeyPatch, cloud: str
) -> None:
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:1")
    with pytest.raises(OSError, match="refused"):
        read_notice(cloud)


def test_cloud_of_a_machine_is_told_by_its_firmware(tmp_path: Path) -> None:
    assert cloud_here(tmp_path) is None
    (tmp_path / "sys_vendor").write_text("QEMU\n")
    assert cloud_here(tmp_path) is None
    (tmp_path / "sys_vendor").write_text("Amazon EC2\n")
    assert cloud_here(tmp_path) == "aws"
