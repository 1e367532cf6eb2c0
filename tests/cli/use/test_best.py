"""`tune best`, also with --confirm on a sweep of digits that is really trained."""

from __future__ import annotations

import json
import shutil

import pytest

import tuning
from results.analysis.comparison import compare
from results.analysis.confirmation import Confirmation, ConfirmedTrial, Remeasurement, read, write
from results.analysis.selection import rank_candidates
from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import read_reports, read_trial
from results.report.sweep_data import read_sweep_data
from results.report.sweep_page import head, winner
from search_spaces.spec.sweep import SweepSpec
from tests.cli.conftest import Tune, add_checkpoint
from tests.cli.trained import DIGITS, trained
from tests.results.report.messages import messages
from tests.trainables.examples import EXAMPLES
from trainables.registry import resolve_for
from tuning.evaluation.average import ModelChoice
from tuning.evaluation.load_model import select_model

ALONE = {**DIGITS, "resources": {"workers": 1}}


def test_best_prints_the_winner(tune: Tune) -> None:
    paths = tune.sweep("mine", fixed={"epochs": 9}, seed=7)
    found = tune.best("mine")
    record = read_trial(paths.trial(found["trial"]))
    assert found == {
        "version": 1,
        "sweep": "mine",
        "trial": record.id,
        "metric": "loss",
        "mode": "min",
        "value": found["value"],
        "values": {"loss": found["value"]},
        "step": 9,
        "why": "its last loss is the lowest of 6 trials",
        "confirmed": False,
        "params": record.params,
        "config": {"epochs": 9, "x": record.params["x"], "opt": {"k": record.params["opt.k"]}},
        "seed": record.seed,
        "checkpoint": None,
    }
    checkpoint = add_checkpoint(paths, record.id, 9)
    assert tune.best("mine")["checkpoint"] == str(checkpoint)
    assert tune("best", str(paths.root)).out == (
        f"{record.id}  loss {found['value']:.4g} at step 9\n"
        f"  x: {record.params['x']:.4g}\n"
        f"  opt.k: {record.params['opt.k']}\n"
        "why        its last loss is the lowest of 6 trials\n"
        f"checkpoint {checkpoint}\n"
        "confirm    tune best mine --confirm 3\n"
        "           (the search measured it only once)\n"
    )


@pytest.mark.parametrize("args", [[], ["--at", "smoothed"]])
def test_selection_rule_of_the_file_or_the_command_line(tune: Tune, args: list[str]) -> None:
    select = {} if args else {"at": "smoothed"}
    tune.sweep("mine", select=select)
    assert tune.best("mine", *args)["why"] == ("its smoothed loss is the lowest of 6 trials")
    assert "(smoothed) until step 9\n" in tune("best", "mine", *args).out


def test_confirm_trains_again_and_evaluates_on_the_test_split(tune: Tune) -> None:
    paths = trained(ALONE)
    before = tune.best("mine")
    assert not before["confirmed"]
    assert before["why"] == "its last accuracy is the highest of 3 trials"

    output = tune("best", "mine", "--confirm", "2", "--seeds", "2").out
    assert "4 of 4, " in output
    made = read(paths)
    assert made is not None
    assert made.trials[0].trial == before["trial"]
    assert len(set(made.seeds)) == 2
    for one in made.trials:
        accuracy = one.series["accuracy"]
        assert len(accuracy.test) == len(accuracy.selection) == 2
        assert accuracy.test != accuracy.selection
        curves = [read_reports(paths.retrained(one.trial, seed)) for seed in made.seeds]
        steps = [[report.step for report in curve] for curve in curves]
        assert steps == [[1, 2], [1, 2]]  # as many steps as the trial
        assert [c[-1].metrics["accuracy"] for c in curves] == list(accuracy.selection)
        assert curves[0][0].metrics != curves[1][0].metrics
    after = tune.best("mine")
    assert (after["confirmed"], after["trial"]) == (True, made.winner.trial)
    assert "± " in output
    assert f"why        {after['why']}\n" in output
    _confirm_once_more(tune, paths, made)


def test_a_confirmation_scores_adapters_of_starts_of_its_own_seeds(tune: Tune) -> None:
    fixed = {**EXAMPLES["sft, LoRA"].config, "max_steps": 2, "eval_answers": 0}
    changes = {"trainable": "sft", "metric": "eval_loss", "mode": "min", "fixed": fixed}
    paths = trained({**ALONE, **changes}, budget={"trials": 1}, scheduler={"name": "none"})
    tune("best", "mine", "--confirm", "1", "--seeds", "1")
    made = read(paths)
    assert made is not None
    start = json.loads((paths.trial("t0000").checkpoint(2) / "lineage.json").read_text())
    again = paths.retrained("t0000", made.seeds[0]).checkpoint(2) / "lineage.json"
    assert json.loads(again.read_text()) != start


def test_a_model_has_the_value_of_its_weights(tune: Tune) -> None:
    """Not of the newest report, nor of the best one."""
    paths = trained(ALONE, metric="loss", mode="min")
    first, _ = read_reports(paths.trial("t0000"))
    shutil.rmtree(paths.trial("t0000").checkpoint(2))
    picked = select_model(paths, "t0000", None, "export")
    assert picked.ref.metrics == {"loss": first.metrics["loss"]}


def _confirm_once_more(tune: Tune, paths: SweepPaths, made: Confirmation) -> None:
    """Trains nothing twice, obeys a rule on the command line, and reevaluates weights."""
    stamps = {f: f.stat().st_mtime_ns for f in paths.root.glob("confirmations/*/*/reports.jsonl")}
    tune("best", "mine", "--confirm", "2", "--seeds", "2")
    assert read(paths) == made
    assert stamps == {f: f.stat().st_mtime_ns for f in stamps}
    assert not tune.best("mine", "--at", "last")["confirmed"]
    tune("report", "mine")
    assert "Confirmation" in messages(paths.report.read_text())

    tune("best", "mine", "--confirm", "3", "--reevaluate")
    again = read(paths)
    assert again is not None
    assert (again.seeds, [len(m.series["accuracy"].test) for m in again.trials]) == ((), [1, 1, 1])


def test_confirm_measures_every_objective(tune: Tune) -> None:
    metrics = {"metric": ["accuracy", "train_loss"], "mode": ["max", "min"]}
    paths = trained(ALONE, budget={"trials": 2}, **metrics)
    output = tune("best", "mine", "--confirm", "2", "--seeds", "2").out
    made = read(paths)
    assert made is not None
    assert list(made.modes) == ["accuracy", "train_loss"]
    for one in made.trials:
        accuracy, train_loss = one.series["accuracy"], one.series["train_loss"]
        assert accuracy.test != accuracy.selection
        assert train_loss.test == train_loss.selection  # evaluate() does not give it
        assert f"{one.trial}  train_loss  search" in output
    assert "on the front: " in output
    assert made.winner.trial == tune.best("mine")["trial"]


def test_confirm_compares_new_trainings_by_the_same_step(tune: Tune) -> None:
    worst = {"metric": "loss", "mode": "max", "select": {"at": "best"}}  # at the first step
    paths = trained(ALONE, budget={"trials": 1}, **worst)
    output = tune("best", "mine", "--confirm", "1", "--seeds", "2").out
    assert "search values are the best ones, test values those of the last step" in output
    made = read(paths)
    assert made is not None
    ((one,), curves) = made.trials, [read_reports(paths.retrained("t0000", s)) for s in made.seeds]
    assert one.series["loss"].search == read_reports(paths.trial("t0000"))[0].metrics["loss"]
    assert one.series["loss"].selection == tuple(c[0].metrics["loss"] for c in curves)
    assert all(c[0].metrics["loss"] > c[-1].metrics["loss"] for c in curves)


def test_confirm_refuses_a_loop_without_a_seed(tune: Tune) -> None:
    tune.write("loop.py", "def train(config): report(config)\n")
    tune.sweep("mine", trainable="loop.py:train")
    assert "takes no seed, so it cannot be trained again under fresh ones; let the loop" in (
        tune.refused("best", "mine", "--confirm", "1")
    )
    assert "they cannot be evaluated here; leave --reevaluate out" in (
        tune.refused("best", "mine", "--confirm", "1", "--reevaluate")
    )


def test_every_command_names_the_confirmed_winner(tune: Tune) -> None:
    paths = trained(DIGITS)
    spec = read_spec(paths)
    order = [line.record.id for line in rank_candidates(paths, spec, spec.select)]
    assert _candidates(paths, spec) == order
    values = {trial: 0.5 + 0.1 * place for place, trial in enumerate(order)}  # the last is best
    series = {t: Remeasurement(search=0.9, test=(v, v + 0.001)) for t, v in values.items()}
    trials = tuple(ConfirmedTrial(trial=t, series={"accuracy": s}) for t, s in series.items())
    made = Confirmation(modes={"accuracy": "max"}, seeds=(1, 2), trials=trials)
    write(paths, made)
    assert _candidates(paths, spec) == [order[-1], *order[:-1]]
    picked = select_model(paths, None, None, "export")
    assert (picked.name, picked.confirmed) == (order[-1], True)
    assert tune.best("mine")["trial"] == order[-1]
    assert f"{order[-1]} *" in tune("show", "mine").out
    assert [s.winner.record.id for s in compare([paths]) if s.winner] == [order[-1]]
    data = read_sweep_data(paths)
    assert head(data)["winnerTrial"] == order[-1]
    assert winner(data)[0].startswith(f"Winner: {order[-1]}, ")


def _candidates(paths: SweepPaths, spec: SweepSpec) -> list[str]:
    models = resolve_for(spec).models
    return [one.trial_id for one in ModelChoice(top=3).candidates(paths, spec, models)[0]]


def test_best_refuses_options_that_do_not_fit(tune: Tune) -> None:
    paths = tune.sweep("mine")
    for option in (["--reevaluate"], ["--seeds", "5"], ["--address", "auto"]):
        assert tune.refused("best", "mine", *option) == (
            f"{option[0]} needs --confirm K: the number of trials to evaluate\n"
        )
    both = ("--confirm", "1", "--reevaluate", "--seeds", "2")
    assert "--seeds: has no effect with --reevaluate" in tune.refused("best", "mine", *both)
    assert tune.refused("best", "mine", "--rule", "knee") == (
        "--rule: the sweep has one objective; see select.objectives\n"
    )
    objectives = {"loss": "min", "step": "min"}
    tune.sweep("front", select={"objectives": objectives, "weights": {"loss": 2}})
    assert tune.refused("best", "front", "--at", "best") == (
        "select: cannot be compared at their best, which is at different steps for each: "
        "set select.at to last or smoothed\n"
    )
    for trial_id in paths.trial_ids():
        add_checkpoint(paths, trial_id, 9)
    # the simulated configurations do not fit digits
    assert "no longer fits digits: " in tune.refused("best", "mine", "--confirm", "1")


def test_trials_that_only_the_asking_program_can_run_are_not_to_be_confirmed(tune: Tune) -> None:
    space, budget = {"x": tuning.uniform(0, 1)}, tuning.Budget(trials=1)
    asked = tuning.Sweep(metric="loss", space=space, budget=budget, name="asked")
    trial = asked.ask()
    assert trial is not None
    asked.tell(trial, {"loss": 1.0})
    asked.close()
    assert "--confirm" not in tune("best", "asked").out
    assert "--confirm" not in " ".join(winner(read_sweep_data(SweepPaths(asked.folder))))
    for refused in (["best", "asked", "--confirm", "1"], ["reproduce", "asked", "t0000"]):
        assert tune.refused(*refused).startswith(  # and no plan before it
            "trainable external: its trials are run by a Python program: "
        )


@pytest.mark.parametrize("seed", ["", "{seed}"])
def test_programs_without_a_seed_are_not_to_be_confirmed(tune: Tune, seed: str) -> None:
    tune.sweep("mine", command=["sh", "a.sh", "{x}", seed], trainable=None)
    assert ("--confirm" in tune("best", "mine").out) is bool(seed)
