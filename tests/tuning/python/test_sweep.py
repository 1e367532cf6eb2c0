"""`tuning.Sweep`, as far as it needs no cluster."""

from __future__ import annotations

import doctest
import inspect
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tuning
from results.paths import SweepPaths
from results.sweep_folder.lock import current_driver
from search_spaces.errors import UserError
from search_spaces.loading.reader import read_file
from search_spaces.loading.sweep_file import load_sweep
from tests.tuning.sources import sweep as make_sweep
from tuning.controller.commands import pending_commands

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "search_spaces").glob("*.yaml"))
SPACE = {"learning_rate": tuning.loguniform(1e-4, 1e-1)}


def digits(**changes: Any) -> tuning.Sweep:
    given = {"trainable": "digits", "metric": "loss", "space": SPACE, "budget": {"trials": 2}}
    return tuning.Sweep(**{**given, **changes})


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_arguments_make_the_spec_of_a_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)  # of the files that a command names
    keys = {"trainable": None, **read_file(file).data}
    assert tuning.Sweep(**keys).spec == load_sweep(file).spec == tuning.load_yaml(file).spec


def test_every_section_is_a_call_with_the_keys_of_a_file() -> None:
    made = digits(
        budget=tuning.Budget(trials=3, time="2h"),
        scheduler=tuning.Scheduler(name="asha", max_t=9),
        resources=tuning.Resources(workers=2),
        search=tuning.Search(startup_trials=2),
        checkpoint=tuning.Checkpoint(every=3),
    ).spec
    assert (made.budget.time, made.scheduler.max_t, made.resources.max_workers) == (7200.0, 9, 2)
    assert (made.search.startup_trials, made.checkpoint.every) == (2, 3)


def test_values_of_python_are_written_as_a_file_has_them() -> None:
    space = {"learning_rate": tuning.choice((np.float32(0.5), 0.25)), "units": {"choice": range(2)}}
    spec = digits(space=space, fixed={"path": Path("/data"), "n": np.int64(3)}).spec
    domains = spec.domains()
    assert domains["learning_rate"].categories == (0.5, 0.25)
    assert domains["units"].categories == (0, 1)
    assert spec.fixed == {"path": "/data", "n": 3}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": tuning.Budget(trials=0)}, "Sweep(budget): budget.trials: must be a whole numb"),
        ({"budget": tuning.Budget(trails=1)}, "(did you mean 'trials'?)"),
        ({"budgets": {}}, "Sweep(budgets): budgets: unknown key (did you mean 'budget'?)"),
        ({"space": {"x": tuning.uniform(1, 0)}}, "Sweep(space): space.x: uniform needs lower < up"),
        ({"metric": 3}, "Sweep(metric): metric: must be"),
        ({"trainable": len}, "Sweep(trainable): must be a name, a function or a class"),
    ],
)
def test_mistakes_name_the_argument(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        digits(**changes)
    assert message in str(caught.value)


def test_all_mistakes_come_at_once() -> None:
    with pytest.raises(UserError) as caught:
        digits(budget=tuning.Budget(trials=0), seed=-1)
    assert [line.partition(":")[0] for line in caught.value.problems] == [
        "Sweep(budget)",
        "Sweep(seed)",
    ]


def test_mistakes_of_the_trainable_leave_no_folder(tmp_path: Path) -> None:
    wrong = digits(fixed={"hiden_units": 3}, storage=tmp_path / "sweeps")
    with pytest.raises(UserError, match=r"Sweep\(fixed\): fixed.hiden_units: unknown"):
        wrong.start()
    assert not (tmp_path / "sweeps").exists()
    with pytest.raises(UserError, match="has not started"):
        wrong.trials  # noqa: B018 - raises


def test_load_reads_a_sweep_by_folder(tmp_path: Path) -> None:
    paths = make_sweep(tmp_path)
    sweep = tuning.load(paths.root)
    assert len(sweep.trials) == 6
    assert sweep.best()["trial"] == sweep.trials["trial"].iloc[0]
    assert sweep.best()["value"] == sweep.trials["value"].iloc[0]
    assert tuning.load("mine", storage=str(tmp_path)).folder == paths.root.resolve()


def test_add_queues_a_configuration(tmp_path: Path) -> None:
    sweep = tuning.load(make_sweep(tmp_path).root)
    sweep.add(x=0.25, **{"opt.k": 2})
    (command,) = pending_commands(SweepPaths(sweep.folder))
    assert command.params == {"x": 0.25, "opt.k": 2}
    with pytest.raises(UserError, match="must be of uniform"):
        sweep.add(x=2.0)


def test_docstrings_of_public_names_are_true() -> None:
    modules = {inspect.getmodule(getattr(tuning, name)) for name in tuning.__all__}
    modules.add(inspect.getmodule(tuning.Sweep.ask))
    found = {module.__name__: doctest.testmod(module) for module in modules if module}
    assert not any(result.failed for result in found.values())
    shown = {name.rpartition(".")[2] for name, result in found.items() if result.attempted}
    assert shown >= {"ask_tell", "load", "space", "sweep"}


def test_finished_sweep_runs_to_its_end_at_once(tmp_path: Path) -> None:
    seen = Seen()
    sweep = tuning.load(make_sweep(tmp_path).root)
    assert sweep.run(callbacks=[seen], live=False) is sweep
    assert seen.history == 6
    assert seen.ended


def test_session_that_ends_by_a_mistake_raises_its_own_words(tmp_path: Path) -> None:
    paths = make_sweep(tmp_path)
    shutil.rmtree(paths.trial("t0003").root)
    run = tuning.load(paths.root).start()
    with pytest.raises(UserError, match="t0003") as caught:
        run.wait()
    assert "exit code 3" in caught.value.problems[-1]


def test_interrupted_run_ends_its_session_first(tmp_path: Path) -> None:
    paths = make_sweep(tmp_path)
    run, main = tuning.load(paths.root).start(), threading.main_thread().ident
    assert main is not None
    threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        run.finish()
    assert not run.running
    assert current_driver(paths.lock) is None


def test_an_error_of_a_callback_is_raised_by_wait(tmp_path: Path) -> None:
    class Broken(tuning.SweepEvents):
        def session_ended(self, ending: Any) -> None:
            raise ArithmeticError("mine")

    run = tuning.load(make_sweep(tmp_path).root).start(callbacks=[Broken()])
    with pytest.raises(ArithmeticError, match="mine"):
        run.wait()


class Seen(tuning.SweepEvents):
    """What an observer was told."""

    def __init__(self) -> None:
        self.history, self.ended = 0, False

    def session_started(self, start: Any) -> None:
        self.history = len(start.history)

    def session_ended(self, ending: Any) -> None:
        self.ended = True
