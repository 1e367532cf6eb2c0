"""Reports of programs that know nothing of a sweep: from their output and their files."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorboardX import SummaryWriter

from results.checkpoints.retention import Retention
from search_spaces.errors import UserError
from search_spaces.spec.command import ReportFromSpec
from tests.user_code.conftest import PROGRAMS, python, run_command
from trainables.user_code.command.event_files import EventFiles


def test_output_becomes_reports_by_patterns(tmp_path: Path) -> None:
    patterns = ReportFromSpec(stdout={"loss": r"loss=(\S+)", "epoch": r"epoch (\d+)"})
    command = ["awk", "-v", "rate={rate}", "-f", str(PROGRAMS / "train.awk")]
    channel = run_command(
        tmp_path / "t", command, {"rate": 0.5}, report_from=patterns, time_attr="epoch"
    )
    assert channel.curve == {n: {"loss": 0.5**n, "epoch": n} for n in (1, 2, 3, 4)}


def test_colors_are_no_part_of_the_output(tmp_path: Path) -> None:
    source = ReportFromSpec(stdout={"loss": r"\bloss=(\S+)"})
    code = r"print('\x1b[1mloss\x1b[0m=\x1b[32m0.5\x1b[0m')"
    assert run_command(tmp_path / "t", python(code), report_from=source).curve == {1: {"loss": 0.5}}


def test_nested_metrics_are_named_as_those_of_loops(tmp_path: Path) -> None:
    code = "from tune_report import report\nreport(step=1, eval={'loss': 0.5, 'at': {'k': 1}})"
    retention = Retention(metric="eval/loss")
    channel = run_command(tmp_path / "t", python(code), retention=retention)
    assert channel.curve == {1: {"eval/loss": 0.5, "eval/at/k": 1.0}}


def test_file_of_the_program_becomes_reports(tmp_path: Path) -> None:
    code = "print('{\"loss\": 1}\\n{\"loss\": 0.5}', file=open('log.jsonl', 'a'))"
    source = ReportFromSpec(jsonl="log.jsonl")
    for attempt in (1, 2):  # the second one appends
        channel = run_command(tmp_path / "t", python(code), report_from=source, attempt=attempt)
        assert channel.curve == {1: {"loss": 1.0}, 2: {"loss": 0.5}}


def test_value_that_was_written_before_the_metric_is_in_its_report(tmp_path: Path) -> None:
    files = EventFiles(tmp_path, "val/loss")
    with SummaryWriter(str(tmp_path / "val")) as validation:
        validation.add_scalar("loss", 2.0, 3, walltime=20.0)
    assert list(files.new()) == []  # other files may have been read too early
    with SummaryWriter(str(tmp_path)) as train:
        train.add_scalar("loss", 1.0, 3, walltime=10.0)
        train.add_scalar("loss", 0.5, 4, walltime=30.0)
    assert [report.values for report in files.new()] == [{"loss": 1.0, "val/loss": 2.0, "step": 3}]
    assert list(files.new(ended=True)) == []


@pytest.mark.parametrize("run", ["Nov28_host", "a/version_0"])
def test_folder_of_the_only_run_is_in_no_name(tmp_path: Path, run: str) -> None:
    with SummaryWriter(str(tmp_path / "earlier")) as writer:
        writer.add_scalar("loss", 9.0, 1)
    files = EventFiles(tmp_path, "val/loss")
    with SummaryWriter(str(tmp_path / run)) as writer:
        writer.add_scalar("train/loss", 2.0, 1)
        writer.add_scalar("val/loss", 1.0, 1)
    values = {"train/loss": 2.0, "val/loss": 1.0, "step": 1}
    assert [report.values for report in files.new(ended=True)] == [values]
    with SummaryWriter(str(tmp_path / "other")) as writer:
        writer.add_scalar("val/loss", 1.0, 2)
    with pytest.raises(UserError, match=f"several runs.*such as {run}/val/loss"):
        list(files.new(ended=True))


def test_event_files_of_tensorboard_become_reports(tmp_path: Path) -> None:
    code = (
        "from tensorboardX import SummaryWriter\n"
        "train, validation = SummaryWriter('runs'), SummaryWriter('runs/val')\n"
        "for step in range(1, 7):\n"
        "    train.add_scalar('loss', 1 / step, step)\n"
        "    train.add_histogram('weights', [0.0, step], step)\n"
        "    train.flush()\n"
        "    if step % 3 == 0:\n"
        "        validation.add_scalar('loss', 2 / step, step)\n"
    )
    source = ReportFromSpec(tensorboard="runs")
    options = {"report_from": source, "retention": Retention(metric="val/loss")}
    for attempt in (1, 2):  # the second one adds files
        channel = run_command(tmp_path / "t", python(code), attempt=attempt, **options)
        assert {s: set(m) for s, m in channel.curve.items()} == {3: {"loss", "val/loss"}} | {
            6: {"loss", "val/loss"}
        }
        assert channel.curve[6] == pytest.approx({"loss": 1 / 6, "val/loss": 2 / 6})
    with pytest.raises(UserError, match=r"has a scalar 'accuracy' .valid: loss, val/loss"):
        run_command(
            tmp_path / "u",
            python(code),
            report_from=source,
            retention=Retention(metric="accuracy"),
        )
