"""Errors in a sweep file: exactly these lines on stderr, exit code 2, and no file is written."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.conftest import Tune

SWEEP = """\
name: mine
trainable: digits
metric: accuracy
mode: max
space:
  learning_rate: {loguniform: [1.0e-4, 1.0e-1]}
  dropout: {uniform: [0, 0.5]}
fixed:
  epochs: 3
scheduler: {name: none}
budget: {trials: 2}
"""
LOOP = "def train(config): report(config)\n"


IN_FILE = [
    ("{uniform: [0, 0.5]}", "{randn: [0.3, 0.1]}", "7: space.dropout: must be >= 0.0, got -0.3"),
    ("  dropout:", "  drop_out:", "7: space.drop_out: unknown hyperparameter|'dropout'"),
    ("  epochs:", "  epoch:", "9: fixed.epoch: unknown hyperparameter|'epochs'"),
    ("  epochs: 3", "  epochs: 3\n  zzz: 1", "10: fixed.zzz: |(valid: batch_norm, batch_size, "),
    ("uniform: [0, 0.5]", "choice: [0, some]", "7: space.dropout: must be a number, got 'some'"),
    ("trainable: digits", "trainable: digit", "2: unknown trainable 'digit'|'digits'|script.py"),
    ("trainable: digits", "trainable: my_lop.py:train", "2: trainable my_lop.py: |'my_loop.py'"),
    ("trainable: digits", "trainable: no.such:train", "2: trainable no.such: no such module"),
    (
        "trainable: digits",
        "trainable: my_loop.py:trian",
        "2: trainable |'trian'|'train'",
    ),
    ("trainable: digits", "trainable: broken.py:train", "2: trainable |broken.py:1: '(' was never"),
    (
        *("  epochs: 3", "  epochs: 3\n  batch_size: 30\nresources: {workers: {max: 4}}"),
        "10: fixed.batch_size: |number, 4, got 30",
    ),
    (
        *("  epochs: 3", "  batch_norm: true\nresources: {workers: {min: 1, max: 2}}"),
        "9: fixed.batch_norm: |resources.workers must be one number, got true",
    ),
    ("digits", "my_loop.py:train\nresources: {workers: {max: 2}}", "3: resources.workers: |loop"),
    (
        *("uniform: [0, 0.5]", "uniform: [-0.5, 1.5]"),
        "7: space.dropout: must be < 1.0, got 1.5\n7: space.dropout: must be >= 0.0, got -0.5",
    ),
    (
        *("epochs: 3", "epochs: none\n  optimizer: sdg"),
        "9: fixed.epochs: |got 'none'\n10: fixed.optimizer: |adam or sgd, got 'sdg'",
    ),
]
"""A text of the file, what replaces it, and of each line that is printed: its place, and values."""


@pytest.mark.parametrize(("old", "new", "lines"), IN_FILE, ids=[case[1] for case in IN_FILE])
@pytest.mark.parametrize("command", ["run", "plan", "trial"])
def test_trainable_checks_the_file(
    tune: Tune, listing: Callable[[], list[str]], command: str, old: str, new: str, lines: str
) -> None:
    assert SWEEP.count(old) == 1
    tune.write("mine.yaml", SWEEP.replace(old, new))
    tune.write("my_loop.py", LOOP)
    tune.write("broken.py", "def train(config: ...\n")
    before = listing()
    said = tune.refused(command, "mine.yaml").splitlines()
    for line, expected in zip(said, lines.split("\n"), strict=True):
        place, *values = expected.split("|")
        assert line.startswith(f"mine.yaml:{place}")
        assert all(value in line for value in values), line
    assert listing() == before


@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        (["budget.trails=3", "seed"], ["budget.trails: unknown key (|'trials'", "key=value"]),
        (["fixed.epochs=0"], ["fixed.epochs: must be > 0, got 0"]),
        (["trainable=digit"], ["unknown trainable 'digit'"]),
    ],
)
def test_wrong_override_is_named(tune: Tune, overrides: list[str], lines: list[str]) -> None:
    tune.write("mine.yaml", SWEEP)
    said = tune.refused("run", "mine.yaml", *(f"--set={text}" for text in overrides)).splitlines()
    for line, text, values in zip(said, overrides, lines, strict=True):
        assert line.startswith(f"--set {text}: ")
        assert all(value in line for value in values.split("|")), line


def test_incompatible_values_are_reported_once(tune: Tune) -> None:
    tune.write(
        "lm.yaml",
        "name: lm\ntrainable: causal_lm\nmetric: eval_loss\n"
        "space:\n  learning_rate: {loguniform: [1.0e-4, 1.0e-2]}\n"
        "  hidden_size: {randint: [16, 100]}\n"
        "fixed: {num_heads: 8}\nscheduler: {max_t: 10}\nbudget: {trials: 2}\n",
    )
    [line] = tune.refused("plan", "lm.yaml").splitlines()
    assert line.startswith("lm.yaml:6: space.hidden_size: hidden_size 99 must be a multiple of 2")


def test_pbt_refuses_a_ray_train_loop(tune: Tune) -> None:
    tune.write("my_loop.py", LOOP)
    tune.write(
        "mine.yaml",
        "name: mine\ntrainable: my_loop.py:train\nmetric: loss\n"
        "space: {lr: {uniform: [0, 1]}}\nbudget: {trials: 4}\n"
        "scheduler:\n  name: pbt\n  max_t: 8\n",
    )
    assert tune.refused("run", "mine.yaml").startswith("mine.yaml:7: scheduler.name: pbt copies")


def test_modes_and_population_are_checked(tune: Tune) -> None:
    file = tune.write(
        "bad.yaml",
        "name: bad\ntrainable: digits\nmetric: [a, b]\nmode: [min, min, min]\n"
        "space: {x: {uniform: [0, 1]}}\nscheduler: {name: pbt, max_t: 9}\nbudget: {time: 1h}\n",
    )
    output = tune.refused("plan", file)
    assert "bad.yaml:4: mode: needs one mode, or one for each of a, b, got 3" in output
    assert "bad.yaml:7: budget: pbt needs trials, the size of its population" in output


def test_missing_sweep_file(tune: Tune) -> None:
    tune.write("mine.yaml", SWEEP)
    output = tune.refused("run", "mien.yaml")
    assert output == "mien.yaml: no such file (did you mean 'mine.yaml'?)\n"
    output = tune.refused("trial", tune.cwd)
    assert output == f"{tune.cwd}: is a folder; name the sweep file in it\n"
