"""A record that no writer of ours left like this is named, not taken for a torn line."""

import subprocess
from pathlib import Path

import pytest

from results.paths import SweepPaths
from results.records.integrity import check_records
from results.records.reports import Report, read_chain
from results.records.trial import TrialState
from results.storage.atomic import free_space
from results.trial_paths import TrialPaths
from tests.reports import append_report
from tests.results.written import add_trial


@pytest.fixture
def trial(tmp_path: Path) -> TrialPaths:
    """A trial that is running: its record counts none of its reports."""
    sweep = SweepPaths(tmp_path / "sweep")
    paths = sweep.trial(add_trial(sweep, 0, {}, state=TrialState.RUNNING))
    for step in (1, 2, 3):
        append_report(paths, Report(step=step, metrics={"loss": 0.5}, attempt=1, time=1.0))
    return paths


def problems(trial: TrialPaths) -> str:
    return "\n".join(check_records(SweepPaths(trial.root.parents[1])).problems)


@pytest.mark.parametrize(
    "content",
    [
        lambda data: data.decode().encode("utf-16"),
        lambda data: data.decode().encode("utf-16-le"),
        lambda data: b"\x1f\x8b" + data,
        lambda data: data.replace(b'{"step":2', b"\x00\x07garbage"),
    ],
    ids=["utf-16", "utf-16-le", "other beginning", "garbage in the middle"],
)
def test_reports_in_another_form_are_damage(trial: TrialPaths, content: object) -> None:
    trial.reports.write_bytes(content(trial.reports.read_bytes()))  # type: ignore[operator]
    assert any(
        "t0000/reports.jsonl" in p
        for p in check_records(SweepPaths(trial.root.parents[1])).problems
    )


@pytest.mark.parametrize("kept", range(1, 60))
def test_torn_line_is_none(trial: TrialPaths, kept: int) -> None:
    whole = trial.reports.read_bytes()
    start = whole.index(b"\n") + 1
    for lost in (b"", b"\0" * 50):  # zeros: the machine lost power
        trial.reports.write_bytes(whole[: start + kept] + lost)
        chain = read_chain(trial)
        assert chain.problem is None
        assert [r.step for r in chain.reports()] == [1]


def test_file_larger_than_a_record_can_be_is_damage(trial: TrialPaths) -> None:
    with open(trial.reports, "ab") as f:
        f.truncate(40 * 2**30)  # takes no space
    assert "too large" in problems(trial)


def test_lack_of_inodes_is_named(tmp_path: Path) -> None:
    words, few = free_space(tmp_path)
    assert ("inodes" in words) == few
    mount = ["mount", "-t", "tmpfs", "-o", "size=10m,nr_inodes=2", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("may not mount")
    try:
        (tmp_path / "last").touch()
        words, few = free_space(tmp_path)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    assert few
    assert "0 of 2 inodes" in words
