"""Functions that cannot take a dict as their argument, and code that is found from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.checkpoints.retention import Retention
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.trainables.local import run_trial
from trainables.worker import Worker
from tuning.controller.preflight.checks import preflight

REPORT = "ray.train.report({'loss': %s})"
WRONG = {
    "dataclass": ("c: Config", REPORT % "c.lr", "reads c.lr, and its argument is a dict; read c['"),
    "names": ("lr, epochs=3", REPORT % "lr", "is called with one argument, a dict; read lr as con"),
    "keywords": ("**c", REPORT % "c['lr']", "is called with one argument, the configuration"),
}
FINE = {
    "dict": ("c", REPORT % "len(c.keys()) + c['lr']"),
    "converted": ("c: Config", f"c = Config(**c); {REPORT % 'c.lr'}"),
    "tested": ("c", f"lr = c.lr if hasattr(c, 'lr') else c['lr']; {REPORT % 'lr'}"),
    "inner": ("c", f"f = lambda c: c.lr; {REPORT % 'f(Config(**c))'}"),
    "name": ("lr", REPORT % "lr['lr']"),
}


def problems(folder: Path, arguments: str, body: str) -> str:
    """What `tune plan` says of a function."""
    (folder / "f.py").write_text(f"import ray.train\ndef f({arguments}):\n    {body}\n")
    file = folder / "s.yaml"
    file.write_text(
        f"name: s\ntrainable: {folder}/f.py:f\nmetric: loss\nspace: {{lr: {{uniform: [0, 1]}}}}\n"
        "scheduler: {name: none}\nbudget: {trials: 1}\n"
    )
    try:
        preflight(load_sweep(file))
    except UserError as e:
        return str(e)
    return ""


@pytest.mark.parametrize("name", WRONG)
def test_function_that_takes_no_dict_is_refused(name: str, tmp_path: Path) -> None:
    arguments, body, message = WRONG[name]
    assert f"f.py:2: f() {message}" in problems(tmp_path, arguments, body)


@pytest.mark.parametrize("name", FINE)
def test_other_functions_are_not(name: str, tmp_path: Path) -> None:
    assert problems(tmp_path, *FINE[name]) == ""


def test_module_of_the_working_directory_is_a_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_package").mkdir()
    loop = "import ray.train\nfrom . import train\ndef loop(config):\n    " + REPORT % "1"
    (tmp_path / "own_package" / "train.py").write_text(loop)
    monkeypatch.chdir(tmp_path)
    retention = Retention(metric="loss")
    channel = run_trial(tmp_path / "t", "own_package.train:loop", {}, retention=retention)
    assert channel.curve == {1: {"loss": 1.0}}


def test_rank_without_others_says_what_ray_train_requires(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(self: Worker, values: dict[str, float]) -> dict[str, float]:
        if "saves" not in values:  # before the report
            return values
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr(Worker, "sum_all", closed)
    (tmp_path / "f.py").write_text("import ray.train\ndef f(config):\n    " + REPORT % "1")
    with pytest.raises(RuntimeError, match=r"equally often \(Connection closed by peer\)"):
        run_trial(tmp_path / "t", f"{tmp_path}/f.py:f", {}, retention=Retention(metric="loss"))
