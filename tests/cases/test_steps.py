"""Steps of the reports of other people's code: fractions, repetitions, and lines to be joined."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from results.checkpoints.commit import newest_intact
from results.checkpoints.retention import Retention
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from search_spaces.spec.command import ReportFromSpec
from search_spaces.spec.select import objectives
from tests.trainables.local import RecordingChannel, make_job, run_trial
from tests.user_code.conftest import python, run_command
from trainables.user_code.metrics import StepCounter

LOSS = {"retention": Retention(metric="loss", clock="epoch"), "time_attr": "epoch"}


def steps_of(folder: Path, reports: Sequence[Mapping[str, float]]) -> list[int | None]:
    counter = StepCounter(make_job(folder, **LOSS), None)
    return [found and found[0] for found in (counter.number(dict(r)) for r in reports)]


@given(st.lists(st.floats(0.01, 1e6), min_size=1, max_size=8, unique=True))
def test_steps_increase_and_reach_the_clock_whatever_its_fractions(clocks: list[float]) -> None:
    clocks = sorted(clocks)
    found = steps_of(Path("unused"), [{"epoch": c, "loss": 1.0} for c in clocks])
    assert None not in found
    assert found == sorted(set(found))  # type: ignore[type-var]  # none is None
    assert all(step >= int(c) for step, c in zip(found, clocks, strict=True))  # type: ignore[operator]


def test_epochs_from_zero_are_counted_from_one_in_every_attempt(tmp_path: Path) -> None:
    first = StepCounter(make_job(tmp_path, **LOSS), None)
    assert [first.number({"epoch": e}) for e in (0.0, 1.0)] == [
        (1, {"epoch": 1.0}),
        (2, {"epoch": 2.0}),
    ]
    resumed = StepCounter(make_job(tmp_path, **LOSS), 2)
    assert resumed.number({"epoch": 2.0, "loss": 1.0}) == (3, {"epoch": 3.0, "loss": 1.0})


def test_other_loops_keep_their_steps(tmp_path: Path) -> None:
    assert StepCounter(make_job(tmp_path, **LOSS), 4).number({"loss": 1.0}) == (5, {"loss": 1.0})
    named = StepCounter(make_job(tmp_path, **LOSS), None)
    assert named.number({"epoch": 2.5}) == (2, {"epoch": 2.5})
    assert named.number({"loss": 1.0}, 1000) == (1000, {"loss": 1.0})


def test_reports_without_the_clock_are_named(tmp_path: Path) -> None:
    assert steps_of(tmp_path, [{"other": 1.0}, {"loss": 1.0}]) == [1, 2]
    assert "reported no epoch" in TrialPaths(tmp_path).warning(1).read_text()


def test_report_of_an_earlier_time_does_not_count_and_is_named(tmp_path: Path) -> None:
    epochs = [{"epoch": e, "loss": 1.0} for e in (1.0, 2.0, 1.5, 3.0)]
    assert steps_of(tmp_path, epochs) == [1, 2, None, 3]
    assert "epoch 1.5 after 2" in TrialPaths(tmp_path).warning(1).read_text()


def test_evaluations_of_one_epoch_are_several_steps(tmp_path: Path) -> None:
    said = [{"epoch": e, "loss": 1.0} for e in (1.0, 1.0, 1.0, 2.0)]
    assert steps_of(tmp_path, said) == [1, 2, 3, 4]
    assert not TrialPaths(tmp_path).warning(1).exists()


def test_code_that_begins_again_is_named_and_what_it_repeats_does_not_count(tmp_path: Path) -> None:
    resumed = StepCounter(make_job(tmp_path, attempt=2, **LOSS), 3)
    said = [{"loss": 1.0}, {"loss": 2.0}, {"loss": 3.0}, {"loss": 4.0}]
    assert [resumed.number(r, step) for step, r in enumerate(said, 1)] == [None] * 3 + [
        (4, said[3])
    ]
    assert "step 1 after 3" in TrialPaths(tmp_path).warning(2).read_text()


def test_loop_reports_training_and_evaluation_of_an_epoch_as_one_step(tmp_path: Path) -> None:
    loop = StepCounter(make_job(tmp_path, **LOSS), None, shares_steps=True)
    said = [{"epoch": 1.0}, {"epoch": 1.0, "loss": 1.0}, {"epoch": 2.0, "loss": 1.0}]
    assert [loop.number(dict(r)) for r in said] == list(zip((1, 1, 2), said, strict=True))


NANOGPT = """
import json, os, pathlib
from tune_report import checkpoint_dir, report

i = 0
if folder := checkpoint_dir():
    i = json.loads(pathlib.Path(folder, "state").read_text())
while True:
    if i > 0:
        os.makedirs("out", exist_ok=True)
        pathlib.Path("out/state").write_text(json.dumps(i))
        report(step=i, loss=1 / i, checkpoint="out")
    if i == 2 * int(os.environ["TUNE_ATTEMPT"]):
        break
    i += 1
"""
"""Evaluates, saves and reports before it trains, so it begins with the step of its checkpoint."""


def test_resumed_command_may_begin_with_the_step_of_its_checkpoint(tmp_path: Path) -> None:
    for attempt, steps in ((1, [1, 2]), (2, [3, 4])):
        kept = LOSS["retention"]
        channel = run_command(tmp_path / "t", python(NANOGPT), attempt=attempt, retention=kept)
        assert list(channel.curve) == steps
    found = newest_intact(TrialPaths(tmp_path / "t"))
    assert found is not None
    assert found.step == 4
    assert not TrialPaths(tmp_path / "t").warning(2).exists()


FUNCTION = """
import json, os, pathlib
from ray import tune

def train(config):
    found, i = tune.get_checkpoint(), 0
    if found:
        with found.as_directory() as folder:
            i = json.loads(pathlib.Path(folder, "state").read_text())
    while i <= config["last"]:
        if i > 0:
            os.makedirs("out", exist_ok=True)
            pathlib.Path("out/state").write_text(json.dumps(i))
            tune.report(
                {"loss": 1 / i, "epoch": i / 2}, checkpoint=tune.Checkpoint.from_directory("out")
            )
        i += 1
"""


def test_resumed_function_may_begin_with_the_time_of_its_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FUNCTION)
    for attempt, steps in ((1, [1, 2, 3]), (2, [4, 5])):
        channel = run_trial(
            tmp_path / "t",
            f"{tmp_path}/f.py:train",
            {"last": 1 + 2 * attempt},
            attempt=attempt,
            **LOSS,
        )
        assert [(s, m["epoch"]) for s, m in channel.curve.items()] == [(s, s / 2) for s in steps]


def lines(tmp_path: Path, said: Sequence[Mapping[str, Any]], **options: Any) -> RecordingChannel:
    """Run a program that appends these lines to its own file."""
    text = "".join(f"{json.dumps(line)}\n" for line in said)
    code = f"open('log.jsonl', 'w').write({text!r})"
    source = ReportFromSpec(jsonl="log.jsonl")
    return run_command(tmp_path / "t", python(code), report_from=source, **LOSS | options)


def test_lines_of_one_step_are_one_report(tmp_path: Path) -> None:
    curve = lines(
        tmp_path,
        [
            {"event": "start", "parameters": 100},
            {"step": 10, "train_loss": 3.0},
            {"step": 10, "loss": 2.0},
            {"step": 10, "train_loss": 99.0},  # after its report
            {"step": 20, "train_loss": 1.0},
            {"step": 20, "train_loss": 1.5},
            {"loss": 0.5},
        ],
    ).curve
    assert curve == {
        10: {"parameters": 100.0, "train_loss": 3.0, "loss": 2.0},
        20: {"train_loss": 1.5, "loss": 0.5},
    }


def test_report_waits_for_every_objective(tmp_path: Path) -> None:
    said: list[dict[str, Any]] = [
        {"epoch": 1, "loss": 2.0},
        {"epoch": 1, "size": 5.0},
        {"epoch": 2, "loss": 9.0},  # the size of this epoch is missing
        {"epoch": 3, "size": 6.0},
        {"epoch": 3, "loss": 1.0},
    ]
    curve = lines(tmp_path, said, objectives=objectives(["loss", "size"], ["min", "max"])).curve
    assert curve == {
        1: {"epoch": 1.0, "loss": 2.0, "size": 5.0},
        3: {"epoch": 3.0, "loss": 1.0, "size": 6.0},
    }


def test_metric_that_never_comes_is_named_beside_what_came(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"never gave loss \(did you mean 'los'\?\)"):
        lines(tmp_path, [{"epoch": 1, "los": 2.0}])


def test_error_output_is_searched_without_progress_bars_and_source_code(tmp_path: Path) -> None:
    code = (
        "import logging, sys\n"
        "logging.basicConfig(level='INFO')\n"
        "for epoch in (1, 2):\n"
        "    for part in range(3):\n"
        "        sys.stderr.write('\\r %d loss=9.5' % part)\n"
        "    sys.stderr.write('\\n  loss=model(x)\\n')\n"
        "    logging.info('epoch %d loss=%s', epoch, 1 / epoch)\n"
    )
    source = ReportFromSpec(stdout={"loss": r"\bloss=(\S+)"})
    curve = run_command(tmp_path / "t", python(code), report_from=source, **LOSS).curve
    assert curve == {1: {"loss": 1.0}, 2: {"loss": 0.5}}
