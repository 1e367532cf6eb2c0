"""Functions and classes that were written for Ray Tune run as trials."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from ray import tune as ray_tune

from results.checkpoints.commit import newest_intact
from results.checkpoints.retention import Retention
from results.trial_paths import TrialPaths
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from tests.user_code.conftest import PROGRAMS
from trainables.job import Answer
from trainables.registry import resolve
from trainables.user_code.ray_tune.trainables import TuneClass, TuneFunction
from trainables.user_code.user_loop import TrainerFunction, UserLoop
from tuning.controller.preflight.checks import preflight

SCRIPT = PROGRAMS / "ray_tune.py"
CONFIG: dict[str, Any] = {"rate": 0.1, "epochs": 4}
BOTH = pytest.mark.parametrize("name", ["train_fn", "Line"])


def run(folder: Path, name: str, **options: Any) -> RecordingChannel:
    config = {**CONFIG, **options.pop("config", {})}
    options = {"retention": Retention(metric="loss"), "checkpoint_every": 1, **options}
    return run_trial(folder, f"{SCRIPT}:{name}", config, **options)


def losses(epochs: int = 4) -> dict[int, float]:
    """The curve without interruption."""
    weight, found = 0.0, {}
    for epoch in range(1, epochs + 1):
        weight -= 0.1 * 2 * (weight - 3)
        found[epoch] = (weight - 3) ** 2
    return found


def curve(channel: RecordingChannel) -> dict[int, float]:
    return {r.step: r.metrics["loss"] for r in channel.reports}


@BOTH
def test_it_reports_saves_and_leaves_nothing_behind(name: str, tmp_path: Path) -> None:
    before = os.getcwd(), tempfile.gettempdir(), ray_tune.report
    assert curve(run(tmp_path / "t", name)) == losses()
    assert newest_checkpoint(tmp_path / "t").step == 4
    assert (os.getcwd(), tempfile.gettempdir(), ray_tune.report) == before


@BOTH
@pytest.mark.parametrize("state", ["dict", "folder"])
def test_second_attempt_goes_on_from_the_checkpoint(name: str, state: str, tmp_path: Path) -> None:
    config = {"fail_at": 4, "every": 2, "state": state}
    options: dict[str, Any] = {"checkpoint_every": 2, "config": config}
    with pytest.raises(ConnectionError):
        run(tmp_path / "t", name, **options)
    assert newest_checkpoint(tmp_path / "t").step == 2
    second = run(tmp_path / "t", name, attempt=2, **options)
    assert curve(second) == {step: loss for step, loss in losses().items() if step > 2}


@BOTH
@pytest.mark.parametrize("answer", [Answer.STOP, Answer.PAUSE])
def test_it_ends_at_the_report_at_which_it_is_told_to(
    name: str, answer: Answer, tmp_path: Path
) -> None:
    channel = RecordingChannel({2: answer})
    assert list(curve(run(tmp_path / "t", name, channel=channel))) == [1, 2]
    assert newest_checkpoint(tmp_path / "t").step == 2
    assert (tmp_path / "t" / "work" / "cleaned.txt").exists() == (name == "Line")


@BOTH
def test_it_ends_at_max_t(name: str, tmp_path: Path) -> None:
    assert list(curve(run(tmp_path / "t", name, max_t=3, time_attr="epoch"))) == [1, 2, 3]


def test_nested_metrics_of_a_class_are_named_by_path(tmp_path: Path) -> None:
    (report,) = run(tmp_path / "t", "Line", config={"epochs": 1}).reports
    assert report.metrics == {"eval/loss": losses()[1], "loss": losses()[1]}


def test_what_a_function_returns_or_yields_is_reported(tmp_path: Path) -> None:
    assert curve(run(tmp_path / "a", "returns")) == {1: 0.1}
    assert curve(run(tmp_path / "b", "number")) == {1: 0.1}
    assert len(curve(run(tmp_path / "c", "yields"))) == 3
    assert curve(run(tmp_path / "d", "with_data")) == {1: 3.0}


def test_function_that_does_not_ask_for_its_checkpoint_begins_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path / "t", "train_fn")
    assert list(curve(run(tmp_path / "t", "forgets", attempt=2))) == [1, 2, 3, 4]
    assert "did not ask for it by ray.tune.get_checkpoint(); it" in capfd.readouterr().err
    assert TrialPaths(tmp_path / "t").warning(2).exists()


def test_context_names_the_trial_and_other_output_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, channel = tmp_path / "sweep" / "trials" / "t0007", RecordingChannel()
    with pytest.raises(UserError, match="returned 'text', which is neither a number nor a dict"):
        run(folder, "context", channel=channel)
    assert channel.reports[0].metrics["same"] == 1.0
    assert "t0007 t0007 sweep" in capfd.readouterr().out


def test_mistakes_of_a_class_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"step\(\) returned 1.0, which is not a dict"):
        run(tmp_path / "a", "Bare")
    with pytest.raises(UserError, match=r"save_checkpoint\(\) returned '/elsewhere'; return the"):
        run(tmp_path / "b", "Line", config={"state": "none"})
    assert newest_intact(TrialPaths(tmp_path / "b")) is None


HEAD = {
    "tune": "from ray import tune\n",
    "train": "import ray.train\n",
    "both": "import ray.train\nfrom ray import tune\n",
    "neither": "",
}
KINDS = [
    ("tune", "tune.report({})", TuneFunction),
    ("both", "tune.report({}); ray.train.get_context()", TuneFunction),
    ("both", "tune.report({}); ray.train.report({})", UserLoop),
    ("both", "ray.train.report({})", UserLoop),
    ("both", "say(config)", UserLoop),
    ("both", "return {'loss': say(config)}", TuneFunction),
    ("tune", "say(config)", TuneFunction),
    ("train", "return say(config)", UserLoop),
    ("neither", "report({})", UserLoop),
    ("neither", "return {'loss': 1}", TuneFunction),
    ("neither", "yield {'loss': 1}", TuneFunction),
    ("neither", "def inner(): return 1\n    report(inner)", UserLoop),
    ("both", "tune.report(TorchTrainer(config).fit().metrics)", TrainerFunction),
]


@pytest.mark.parametrize(("head", "body", "kind"), KINDS)
def test_kind_of_a_function_is_read_from_its_source(
    head: str, body: str, kind: type, tmp_path: Path
) -> None:
    file = tmp_path / "script.py"
    file.write_text(f"{HEAD[head]}\n\ndef f(config):\n    {body}\n")
    assert type(resolve(f"{file}:f")) is kind


def test_class_is_known_by_its_bases_without_an_import(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(
        "import no_such_module\nimport ray.tune as rt\n\n\n"
        "class A(rt.Trainable): ...\n\n\nclass B(A):\n    def save_checkpoint(self, d): ...\n"
        "    def load_checkpoint(self, d): ...\n"
    )
    first, second = resolve(f"{file}:A"), resolve(f"{file}:B")
    assert isinstance(first, TuneClass)
    assert (first.can_pause, second.can_pause) == (False, True)
    file.write_text(file.read_text().replace("rt.Trainable", "other.Base"))
    with pytest.raises(UserError, match=r"cannot be imported: .*no_such_module"):
        resolve(f"{file}:B")


SWEEP = """
name: t
trainable: script.py:f
metric: loss
space: {lr: {uniform: [0, 1]}}
scheduler: {name: none}
budget: {trials: 1}
"""
MISTAKES = """
from ray import tune
from ray.air import session


def f(config):
    tune.report({"loss": config["rate"]})


def g(config, data):
    tune.report({"loss": 1})


class C(tune.Trainable):
    def step(self):
        done = False  # whether it is done
        return {"loss": 1}


def old(config):
    session.report({"loss": config["lr"]})
    tune.report(loss=config["lr"])


def search(config):
    tune.Tuner(f).fit()


search({})
"""


def test_plan_says_what_would_go_wrong(tmp_path: Path) -> None:
    script, file = tmp_path / "script.py", tmp_path / "t.yaml"
    script.write_text(MISTAKES)
    unguarded = f"t.yaml:3: trainable: {script}:29: calls search() when a worker imports the file"
    workers = "--set resources.workers=2: resources.workers: a Ray Tune function takes one worker"
    for name, problems in {
        "f": [
            unguarded,
            f"t.yaml:3: trainable: {script}:6: f() reads config['rate'], which is neither",
            f"t.yaml:5: space.lr: f() ({script}:6) does not read config['lr'] (valid: rate)",
            "--set checkpoint.every=2: checkpoint.every: has no effect: a Ray Tune function",
            workers,
        ],
        "g": [f"t.yaml:3: trainable: {script}:10: g() is called with one argument", unguarded],
        "C": ["t.yaml:6: scheduler: nothing ends a trial: give max_t, or let step()"],
        "search": [f"t.yaml:3: trainable: {script}:26: ray.tune.Tuner is a search of its own"],
        "old": [
            f"t.yaml:3: trainable: {script}:21: ray.air.session.report has no effect",
            f"{script}:22: ray.tune.report(loss=…) is of Ray 1; report one dict",
        ],
    }.items():
        file.write_text(SWEEP.replace(":f", f":{name}"))
        with pytest.raises(UserError) as error:
            preflight(load_sweep(file, ["resources.workers=2", "checkpoint.every=2"]))
        for problem in problems:
            assert problem in str(error.value)
    for name in ("f", "C"):
        file.write_text(SWEEP.replace(":f", f":{name}"))
        with pytest.raises(UserError, match=r"from checkpoints, and .* saves none; use"):
            preflight(load_sweep(file, ["scheduler={name: pbt, max_t: 4}", "budget.trials=4"]))


def test_partial_is_the_function_that_it_calls(tmp_path: Path) -> None:
    function = "def f(config, data):\n    return {'loss': data * config['lr']}\n"
    imported = "from functools import partial\n"
    (tmp_path / "s.py").write_text(f"{imported}{function}g = partial(f, data=2)\n")
    channel = run_trial(tmp_path / "t", f"{tmp_path}/s.py:g", {"lr": 3.0})
    assert channel.curve == {1: {"loss": 6.0}}


@pytest.mark.parametrize("name", ["line", "instance"])
def test_any_callable_of_a_file_for_ray_tune_is_a_function(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "from ray import tune\nline = lambda config: tune.report({'loss': config['lr']})\n"
        "class Model:\n    def __call__(self, config): line(config)\ninstance = Model()\n"
    )
    assert run_trial(tmp_path / "t", f"{tmp_path}/s.py:{name}", {"lr": 3.0}).curve == {
        1: {"loss": 3.0}
    }
