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


IN_FILE = {
    "tail of a normal": (
        ("dropout: {uniform: [0, 0.5]}", "dropout: {randn: [0.3, 0.1]}"),
        "mine.yaml:7: space.dropout: must be >= 0.0, got -0.3; "
        "randn reaches from mean - 6 sd to mean + 6 sd\n",
    ),
    "unknown in space": (
        ("  dropout:", "  drop_out:"),
        "mine.yaml:7: space.drop_out: unknown hyperparameter 'drop_out' "
        "(did you mean 'dropout'?)\n",
    ),
    "unknown in fixed": (
        ("  epochs:", "  epoch:"),
        "mine.yaml:9: fixed.epoch: unknown hyperparameter 'epoch' (did you mean 'epochs'?)\n",
    ),
    "far from any": (
        ("  epochs: 3", "  epochs: 3\n  zzz: 1"),
        "mine.yaml:10: fixed.zzz: unknown hyperparameter 'zzz' (valid: batch_norm, batch_size, "
        "communication, dropout, epochs, hidden_units, init_seed, learning_rate, "
        "micro_batch_size, momentum, num_layers, optimizer, weight_decay)\n",
    ),
    "both bounds break a rule": (
        ("uniform: [0, 0.5]", "uniform: [-0.5, 1.5]"),
        "mine.yaml:7: space.dropout: must be < 1.0, got 1.5\n"
        "mine.yaml:7: space.dropout: must be >= 0.0, got -0.5\n",
    ),
    "wrong type": (
        ("uniform: [0, 0.5]", "choice: [0, some]"),
        "mine.yaml:7: space.dropout: must be a number, got 'some'\n",
    ),
    "every mistake at once": (
        ("epochs: 3", "epochs: none\n  optimizer: sdg"),
        "mine.yaml:9: fixed.epochs: must be a whole number, got 'none'\n"
        "mine.yaml:10: fixed.optimizer: must be one of adam or sgd, got 'sdg'\n",
    ),
    "unknown trainable": (
        ("trainable: digits", "trainable: digit"),
        "mine.yaml:2: unknown trainable 'digit' (did you mean 'digits'?); your own code is "
        "path/to/script.py:function or package.module:function\n",
    ),
    "missing script": (
        ("trainable: digits", "trainable: my_lop.py:train"),
        "mine.yaml:2: trainable my_lop.py: no such file (did you mean 'my_loop.py'?)\n",
    ),
    "missing module": (
        ("trainable: digits", "trainable: no.such.module:train"),
        "mine.yaml:2: trainable no.such.module: no such module (from {cwd}); "
        "a script is given as path/to/script.py:function\n",
    ),
    "missing function": (
        ("trainable: digits", "trainable: my_loop.py:trian"),
        "mine.yaml:2: trainable my_loop.py:trian: {cwd}/my_loop.py has no function 'trian' "
        "(did you mean 'train'?)\n",
    ),
    "a batch that some number of workers cannot share": (
        ("  epochs: 3", "  epochs: 3\n  batch_size: 30\nresources: {workers: {min: 1, max: 4}}"),
        "mine.yaml:10: fixed.batch_size: is of all workers together and must divide by their "
        "number, 4, got 30\n",
    ),
    "statistics of a part of the batch": (
        ("  epochs: 3", "  batch_norm: true\nresources: {workers: {min: 1, max: 2}}"),
        "mine.yaml:9: fixed.batch_norm: normalises over each worker's part of the batch, so "
        "resources.workers must be one number, got true\n",
    ),
    "a loop with a changing number of workers": (
        ("digits", "my_loop.py:train\nresources: {workers: {max: 2}}"),
        "mine.yaml:3: resources.workers: a Ray Train loop cannot change its number of workers; "
        "give one number\n",
    ),
    "script that does not parse": (
        ("trainable: digits", "trainable: broken.py:train"),
        "mine.yaml:2: trainable broken.py:train: {cwd}/broken.py:1: '(' was never closed\n",
    ),
}


@pytest.mark.parametrize("case", IN_FILE)
@pytest.mark.parametrize("command", ["run", "plan", "trial"])
def test_trainable_checks_the_file(
    tune: Tune, listing: Callable[[], list[str]], command: str, case: str
) -> None:
    (old, new), expected = IN_FILE[case]
    assert SWEEP.count(old) == 1
    tune.write("mine.yaml", SWEEP.replace(old, new))
    tune.write("my_loop.py", "def train(config): report(config)\n")
    tune.write("broken.py", "def train(config: ...\n")
    before = listing()
    assert tune.refused(command, "mine.yaml") == expected.format(cwd=tune.cwd)
    assert listing() == before


def test_wrong_override_is_named(tune: Tune) -> None:
    tune.write("mine.yaml", SWEEP)
    assert tune.refused("run", "mine.yaml", "--set", "budget.trails=3", "--set", "seed") == (
        "--set budget.trails=3: budget.trails: unknown key (did you mean 'trials'?)\n"
        "--set seed: expected key=value, like --set budget.trials=3\n"
    )
    assert tune.refused("run", "mine.yaml", "--set", "fixed.epochs=0") == (
        "--set fixed.epochs=0: fixed.epochs: must be > 0, got 0\n"
    )
    assert tune.refused("run", "mine.yaml", "--set", "trainable=digit") == (
        "--set trainable=digit: unknown trainable 'digit' (did you mean 'digits'?); your own code "
        "is path/to/script.py:function or package.module:function\n"
    )


def test_incompatible_values_are_reported_once(tune: Tune) -> None:
    tune.write(
        "lm.yaml",
        "name: lm\ntrainable: causal_lm\nmetric: eval_loss\n"
        "space:\n  learning_rate: {loguniform: [1.0e-4, 1.0e-2]}\n"
        "  hidden_size: {randint: [16, 100]}\n"
        "fixed: {num_heads: 8}\nscheduler: {max_t: 10}\nbudget: {trials: 2}\n",
    )
    assert tune.refused("plan", "lm.yaml") == (
        "lm.yaml:6: space.hidden_size: hidden_size 99 must be a multiple of 2 x num_heads "
        "(num_heads is 8): rotary positions turn pairs of units\n"
    )


def test_pbt_refuses_a_ray_train_loop(tune: Tune) -> None:
    tune.write("my_loop.py", "def train(config): report(config)\n")
    tune.write(
        "mine.yaml",
        "name: mine\ntrainable: my_loop.py:train\nmetric: loss\n"
        "space: {lr: {uniform: [0, 1]}}\nbudget: {trials: 4}\n"
        "scheduler:\n  name: pbt\n  max_t: 8\n",
    )
    assert tune.refused("run", "mine.yaml") == (
        "mine.yaml:7: scheduler.name: pbt copies checkpoints, but only a Ray Train loop itself "
        "can read its own; use asha, or write the loop as a class\n"
    )


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
