"""`tune init`: examples, and files for training code and from those of other programs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.examples import description, examples
from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import Tune
from tests.user_code.conftest import PROGRAMS
from tuning.translation.translate import sweep_text

STUDY = """
import optuna


def objective(trial):
    kind = trial.suggest_categorical("kind", ["linear", "deep", "none"])
    rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
    if kind == "deep":
        trial.suggest_int("layers", 1, 4)
    if kind == "none":
        raise ValueError("no model")
    trial.report(rate, 1)
    open("trained", "w")


if __name__ == "__main__":
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner())
    study.optimize(objective, n_trials=25)
"""


def test_optuna_objective_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.py").write_text(STUDY)
    text = sweep_text("study.py:objective")
    (tmp_path / "sweep.yaml").write_text(text)
    spec = load_sweep(tmp_path / "sweep.yaml").spec
    assert {name: domain.dump() for name, domain in spec.domains().items()} == {
        "kind": {"choice": ["linear", "deep", "none"]},
        "rate": {"loguniform": [1e-5, 1e-1]},
        "layers": {"randint": [1, 5]},
    }
    assert (spec.trainable, spec.budget.trials) == ("study.py:objective", 25)
    assert spec.objectives[0].mode == "max"
    assert not (tmp_path / "trained").exists()
    for note in (
        "study.py:9: in some branches only",
        "study.py:17: the pruner MedianPruner: should_prune is never asked",
    ):
        assert note in text
    with pytest.raises(UserError, match="did you mean 'objective'"):
        sweep_text("study.py:objectiv")


WRONG = {
    "none.yaml": (None, "no such file; it takes a sweep of W&B"),
    "other.yaml": ("a: 1\n", r"neither method and parameters \(W&B\)"),
    "bad.yaml": ("a: [1\n", "not valid YAML"),
    "list.yaml": ("- 1\n", "not a mapping of keys"),
    "empty.yaml": (
        "method: grid\nparameters: {a: {value: 1}}\n",
        "no parameter with a domain was found",
    ),
    "plain.py": ("x = 1\n", "calls neither tune.Tuner nor tune.run"),
    "syntax.py": ("x = = 1\n", "syntax.py:1: not valid Python"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_translated_is_one_line(tmp_path: Path, name: str) -> None:
    text, message = WRONG[name]
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message) as error:
        sweep_text(str(tmp_path / name))
    assert len(error.value.problems) == 1
    assert "\n" not in str(error.value)


def test_command_writes_a_file_that_can_be_planned(tune: Tune) -> None:
    tune.write("objective.py", (PROGRAMS / "optuna_objective.py").read_text())
    like = ("init", "--like", "objective.py:objective")
    printed = tune(*like).out
    assert "check it: tune plan sweep.yaml" in tune(*like, "-o", "sweep.yaml").out
    assert (tune.cwd / "sweep.yaml").read_text() == printed
    tune("plan", "sweep.yaml")
    assert "sweep.yaml: exists; choose another name" in tune.refused(*like, "-o", "sweep.yaml")


def test_init_alone_lists_every_example_with_its_own_description(tune: Tune) -> None:
    lines = {line[0]: line for line in tune("init").lines if line}
    for name, path in examples().items():
        assert lines[name][-1] == description(path).split()[-1]


@pytest.mark.parametrize("name", examples())
def test_example_is_written_once(tune: Tune, name: str) -> None:
    assert f"tune run {name}.yaml" in tune("init", name).out
    text = (tune.cwd / f"{name}.yaml").read_text()
    assert "schema" not in text.partition("\n")[0]
    assert "search_spaces/" not in text
    assert f"{name}.yaml: exists" in tune.refused("init", name)


def test_example_brings_the_files_that_it_needs(tune: Tune) -> None:
    tune("init", "command.yaml", "-o", "mine.yaml")
    assert sorted(path.name for path in tune.cwd.iterdir()) == ["command.awk", "mine.yaml"]
    tune("plan", "mine.yaml")


@pytest.mark.parametrize("args", [("digit",), ("digits", "--like", "a.yaml"), ("-o", "a.yaml")])
def test_wrong_use_of_init_writes_nothing(tune: Tune, args: tuple[str, ...]) -> None:
    tune.refused("init", *args)
    assert not [*tune.cwd.iterdir()]


def test_missing_file_with_the_name_of_an_example_says_how_to_write_it(tune: Tune) -> None:
    for command in ("run", "plan", "trial"):
        assert "`tune init digits`" in tune.refused(command, "search_spaces/digits.yaml")


SCRIPT = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--depth", type=int, choices=range(2, 4), default=2)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--nesterov", type=bool, default=True)
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()
open("ran", "w")
for epoch in range(options.epochs):
    print(f"epoch {epoch} train loss: {2.0}, val accuracy: {0.5:.2g}")
"""
LOOP = """
from ray import train

def train_loop(config):
    size = config.get("hidden", 64)
    fit(config, config["lr"], size)

def fit(config, lr, size):
    for epoch in range(config.get("epochs", 9)):
        metrics = {"epoch": epoch, "val/loss": config["dropout"]}
        metrics["train_loss"] = lr
        train.report(metrics)

if __name__ == "__main__":
    TorchTrainer(train_loop, train_loop_config={"lr": 2e-3}).fit()
"""
CODE = {
    "script.py": {"lr", "batch-size", "optimizer", "depth"},
    "loop.py:train_loop": {"hidden", "lr", "dropout"},
    "study.py:objective": {"kind", "rate", "layers"},
    "tune_function.py:train_digits": {"lr", "momentum"},
}


@pytest.mark.parametrize("code", CODE)
def test_file_for_training_code_can_be_planned(tune: Tune, code: str) -> None:
    for name, text in (("script.py", SCRIPT), ("loop.py", LOOP), ("study.py", STUDY)):
        tune.write(name, text)
    tune.write("tune_function.py", (PROGRAMS / "tune_function.py").read_text())
    tune("init", "--trainable", code)
    file = Path(code.partition(".py")[0] + ".yaml")
    assert set(load_sweep(file).spec.space) == CODE[code]
    assert f"# Written by `tune init --trainable {code}`." in file.read_text()
    tune("plan", file)
    assert not (tune.cwd / "ran").exists()
    assert not (tune.cwd / "trained").exists()


def test_options_of_a_script_keep_their_defaults_and_reports(tune: Tune) -> None:
    tune.write("script.py", SCRIPT)
    tune("init", "--trainable", "script.py")
    text, spec = (tune.cwd / "script.yaml").read_text(), load_sweep(Path("script.yaml")).spec
    assert spec.points == [{"lr": 1e-3, "batch-size": 64, "optimizer": "sgd", "depth": 2}]
    assert spec.fixed == {"epochs": 3}
    assert [(o.metric, o.mode) for o in spec.objectives] == [("val_accuracy", "max")]
    for number in ("0.50", "3e-05", "-1.5E+20", "nan"):
        line = f"epoch 1 train loss: 2.0, val accuracy: {number}, 7"
        found = re.search(spec.report_from.stdout["val_accuracy"], line)
        assert found is not None
        assert found[1] == number
    assert "script.py:9: the choices of depth are not read" in text
    assert "script.py:10: amp is left out" in text
    assert "script.py:11: nesterov is left out: its type=bool is true for every text" in text
    assert "script.py:5: default 0.001" in text


def test_default_of_a_loop_is_that_which_its_file_gives(tune: Tune) -> None:
    tune.write("loop.py", LOOP)
    tune("init", "--trainable", "loop.py:train_loop")
    spec = load_sweep(Path("loop.yaml")).spec
    assert spec.points == [{"hidden": 64, "lr": 2e-3}]
    assert spec.objectives[0].metric == "val/loss"


RANGES = {
    "--gae-lambda 0.95": {"uniform": [0.0, 0.99]},
    "--ema-decay 0.999": {"uniform": [0.0, 1.0]},
    "--subsample 0.8": {"uniform": [0.0, 0.99]},
    "--label-smoothing 0.1": {"uniform": [0.0, 0.5]},
    "--drop-path-rate 0.1": {"uniform": [0.0, 0.5]},
    "--weight-decay 0.01": {"loguniform": [0.001, 0.1]},
} | dict.fromkeys(
    ("--test-batch-size 1000", "--val-fraction 0.1", "--input-dim 784", "--n-classes 10")
)


def test_ranges_of_options_make_sense(tune: Tune) -> None:
    lines = [
        f"p.add_argument('{o}', type=type({v}), default={v})" for o, v in map(str.split, RANGES)
    ]
    lines += ["p.add_argument('--tag', required=False)", "print(f'loss: {p.parse_args().tag}')"]
    tune.write("s.py", "\n".join(["import argparse", "p = argparse.ArgumentParser()", *lines]))
    tune("init", "--trainable", "s.py")
    spec = load_sweep(Path("s.yaml")).spec
    found = {name: domain.dump() for name, domain in spec.domains().items()}
    assert found == {o.split()[0][2:]: d for o, d in RANGES.items() if d}
    assert len(spec.fixed) == 4
    assert "s.py:13: tag is left out: no default is read" in (tune.cwd / "s.yaml").read_text()


def test_values_that_the_file_gives_count_before_the_defaults_of_get(tune: Tune) -> None:
    read = "config['o']['wd'], config['betas'], config.get('hidden', 64), config.get('decay', 0.0)"
    given = '{"lr": 2e-3, "betas": (0.9, 0.95), "hidden": 32, "decay": 0.01, '
    given += '"o": {"wd": 0.1, "epochs": 2}}'
    text = LOOP.replace('config["lr"], size)', f'config["lr"], ({read}))').replace(
        '{"lr": 2e-3}', given
    )
    tune.write("loop.py", text)
    tune("init", "--trainable", "loop.py:train_loop")
    spec = load_sweep(Path("loop.yaml")).spec
    assert spec.points == [{"hidden": 32, "lr": 2e-3, "decay": 0.01, "o.wd": 0.1}]
    assert spec.fixed == {"epochs": 9, "betas": [0.9, 0.95], "o": {"epochs": 2}}


def test_search_of_the_file_itself_is_taken_over(tune: Tune) -> None:
    text = "from ray import tune\ndef f(config):\n    tune.report({'score': config['a']})\n"
    config = "tune.TuneConfig(metric='score', mode='min', num_samples=3)"
    search = "tune.with_resources(f, {'cpu': 1}), param_space={'a': tune.uniform(0, 1)}"
    tune.write(
        "s.py",
        f"{text}if __name__ == '__main__':\n    tune.Tuner({search}, tune_config={config}).fit()\n",
    )
    tune("init", "--trainable", "s.py:f")
    spec = load_sweep(Path("s.yaml")).spec
    assert (spec.objectives[0].mode, spec.budget.trials, spec.trainable) == ("min", 3, "s.py:f")
    assert spec.domains()["a"].dump() == {"uniform": [0, 1]}


def test_parameter_without_a_default_is_to_be_filled_in(tune: Tune) -> None:
    tune.write("loop.py", "def loop(config):\n    report({'a': config['zeta']})\n")
    assert 'fill in each "?"' in tune("init", "--trainable", "loop.py:loop").out
    assert "loop.py:2: no default" in (tune.cwd / "loop.yaml").read_text()
    assert "space.zeta" in tune.refused("plan", "loop.yaml")


@pytest.mark.parametrize("code", ["digits", "none.py", "none.py:f", "bare.py", "bare.py:g"])
def test_training_code_that_cannot_be_read_is_one_line(tune: Tune, code: str) -> None:
    tune.write("bare.py", "def f(config):\n    pass\n")
    assert tune.refused("init", "--trainable", code).count("\n") == 1
