"""A full disk, simulated by a limit on the size of files."""

import subprocess
import sys
from pathlib import Path

import pytest

from results.checkpoints.cleanup import remove_leftovers
from results.paths import SweepPaths
from results.records.failures import Remedy, classify
from results.records.trial import read_trials
from results.storage.atomic import append_line, read_lines, write_atomic
from results.trial_paths import TrialPaths
from tests.results.written import write_checkpoint
from tests.trainables.local import newest_checkpoint
from tests.tuning.simulate import outcome, run_sweep
from tuning.controller.sweep import SweepController

ROOT = Path(__file__).parents[3]
LIMITED = """
import resource, sys
from pathlib import Path
root, size = Path(sys.argv[1]), int(sys.argv[2])
from tests.tuning.simulate import run_sweep
from results.storage.atomic import append_line, write_atomic
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    {what}
except OSError as e:
    sys.exit(f"OSError {{e.errno}} {{e}}")
except Exception as e:
    sys.exit(f"{{type(e).__name__}} {{e}}")
"""


def limited(what: str, root: Path, size: int) -> str:
    """Run a statement in a process whose files cannot exceed `size` bytes; returns its stderr.

    It writes no bytecode, which would be cut off too.
    """
    done = subprocess.run(
        [sys.executable, "-B", "-c", LIMITED.format(what=what), str(root), str(size)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return done.stderr.strip()


def test_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "trial.json"
    write_atomic(file, b"good")
    error = limited("write_atomic(root / 'trial.json', b'x' * 5000)", tmp_path, 1000)
    assert error.startswith(f"UserError {file}: File too large for 5000 bytes (")
    assert error.endswith("raise the limit of file sizes (ulimit -f), then run tune resume")
    assert [p.name for p in tmp_path.iterdir()] == ["trial.json"]
    assert file.read_bytes() == b"good"


def test_full_disk_loses_only_the_line_that_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "reports.jsonl"
    append_line(file, '{"a": 1}')
    error = limited(
        "append_line(root / 'reports.jsonl', '{\"b\": \"' + 'x' * 99 + '\"}')", tmp_path, 50
    )
    assert "File too large" in error
    assert list(read_lines(file)) == [{"a": 1}]
    append_line(file, '{"c": 3}')
    assert list(read_lines(file)) == [{"a": 1}, {"c": 3}]


def test_full_disk_keeps_the_older_checkpoint(tmp_path: Path) -> None:
    """The error is classified as a full disk, which ends the session and fails no trial."""
    made = "from tests.tuning.sweep_dir.test_full_disk import save; save(root, {step}, {size})"
    assert limited(made.format(step=1, size=500), tmp_path, 1000) == ""
    error = limited(made.format(step=2, size=5000), tmp_path, 1000)
    assert classify(f"rank 0: {error}").remedy is Remedy.STOP_SWEEP, error
    assert newest_checkpoint(tmp_path).step == 1
    trial = TrialPaths(tmp_path)
    trial.attempt(2).mkdir(parents=True)  # the next attempt cleans up
    remove_leftovers(trial)
    assert [p.name for p in trial.checkpoints.iterdir()] == ["step_00000001"]


def save(root: Path, step: int, size: int) -> None:
    """A checkpoint of one file."""
    write_checkpoint(TrialPaths(root), step, {"weights.bin": bytes(size)})


@pytest.mark.parametrize("size", [600, 1500, 4000])
def test_sweep_resumes_after_a_full_disk(
    tmp_path: Path, uninterrupted: SweepController, size: int
) -> None:
    """The size decides which file is cut short: the study, a record or the reports."""
    root = tmp_path / "s"
    error = limited("run_sweep(root)", root, size)
    assert error.startswith(("UserError", "OSError")), error
    before = {r.id: r for r in read_trials(SweepPaths(root)) if r.state.finished}
    again = run_sweep(root)
    assert outcome(again) == outcome(uninterrupted)
    assert all(again.records[i] == r for i, r in before.items())
