"""`tune add`, `stop` and `pause`, with and without a driver."""

from __future__ import annotations

import pytest

from results.records.spec_file import read_spec
from results.records.trial import TrialState, read_trial, read_trials
from results.sweep_folder.folder import record_end
from results.sweep_folder.lock import acquire_lock
from tests.cli.conftest import Tune
from tests.tuning.simulate import finish, make_spec, open_run, train
from tuning.controller.commands import CommandHandler, pending_commands


def test_add_without_a_driver_queues_for_resume(tune: Tune) -> None:
    paths = tune.sweep("mine")
    assert tune("add", "mine", "x=2.5e-1", "space.opt.k=2").out == (
        "queued; run it with: tune resume mine\n"
    )
    (command,) = pending_commands(paths)
    assert command.params == {"x": 0.25, "opt.k": 2}
    run = open_run(paths.root, make_spec(name="mine"))
    CommandHandler(run).begin()
    finish(run)
    assert read_trials(paths)[-1].params == {"x": 0.25, "opt.k": 2}


@pytest.mark.parametrize(
    ("values", "output"),
    [
        (["x=2"], "x: must be of uniform [-1.0, 1.0], got 2"),
        (["opt.k=7"], "opt.k: must be of choice [1, 2], got 7"),
        (["y=1"], "y: not in the space"),
        (["opt=1"], "opt: give one of its parameters: opt.k\n"),
        (["opt.kk=1"], "opt.kk: not in the space (did you mean 'opt.k'?)"),
        (["x"], "x: expected key=value, like lr=3e-4"),
        (["x=0.2", "x=0.3"], "x: given twice\n"),
        (["x=2", "opt.k=7"], "x: must be of uniform [-1.0, 1.0], got 2\nopt.k: must be"),
    ],
)
def test_add_refuses_values_outside_of_the_space(
    tune: Tune, values: list[str], output: str
) -> None:
    paths = tune.sweep("mine")
    assert tune.refused("add", "mine", *values).startswith(output)
    assert pending_commands(paths) == []


def test_add_in_a_conditional_space(tune: Tune) -> None:
    branches = {"choice": {"sgd": {"momentum": {"uniform": [0.0, 1.0]}}, "adam": {}}}
    space = {"x": {"uniform": [0.0, 1.0]}, "opt": branches, "double": "= 2 * x"}
    paths = tune.sweep("mine", done=False, space=space, constraints=["x <= 0.9"])
    assert tune.refused("add", "mine", "momentum=0.5") == (
        "momentum: not active in this configuration; choose its option too: opt=sgd\n"
    )
    assert tune.refused("add", "mine", "double=1") == "double: it is computed from the others\n"
    assert "violates x <= 0.9" in tune.refused("add", "mine", "x=0.95", "opt=adam")
    tune("add", "mine", "opt=sgd", "momentum=0.5")
    run = open_run(paths.root, read_spec(paths))
    CommandHandler(run).begin()
    params = run.records["t0000"].params
    assert (params["opt"], params["momentum"]) == ("sgd", 0.5)
    assert params["x"] <= 0.9


def test_stop_without_a_driver_changes_the_folder(tune: Tune) -> None:
    paths, run = tune.begun(outcome_constraints=["size < 0"])
    for upto in (2, 3, 9):
        train(run, run.next_trial(), upto=upto, value=lambda c, s: 1.0)
    assert tune("stop", "mine", "t0000").out == "stopped t0000\n"
    record = read_trial(paths.trial("t0000"))
    assert (record.state, record.end_step) == (TrialState.STOPPED, 2)
    assert record.violated_constraints == ("size < 0",)
    assert record.reason.startswith("by hand; breaks size < 0")
    assert tune.refused("stop", "mine", "t0000").startswith(
        "mine: t0000 has ended: stopped, by hand;"
    )
    assert "no trial 't0009'" in tune.refused("stop", "mine", "t0009")

    assert tune("ls").lines[1][1] == "interrupted"
    tune("add", "mine", "x=0.5")
    assert tune("stop", "mine").out == (
        "stopped the sweep; unfinished trials: 1; discarded, since no trial had begun: 1 added\n"
    )
    assert [r.state.finished for r in read_trials(paths)] == [True] * 3
    assert tune("ls").lines[1][1] == "done"
    assert "done, ended by tune stop" in tune("show", "mine").out
    again = open_run(paths.root, make_spec(name="mine"))
    finish(again)
    assert len(again.records) == 6
    record_end(paths, "budget.trials: 6 trials")
    tune("stop", "mine")
    assert "done, ended by budget.trials: 6 trials" in tune("show", "mine").out


def test_commands_are_queued_for_a_driver(tune: Tune) -> None:
    paths, _ = tune.unfinished()
    commands = "add mine x=0", "stop mine t0000", "stop mine", "pause mine"
    with acquire_lock(paths.lock):
        output = [tune(*command.split()).out for command in commands]
    me = output[3].partition(" pauses now; continue with: tune resume mine\n")[0]
    assert output == [
        f"queued: it is the next trial that {me} starts\n",
        f"{me} stops t0000 at the next report\n",
        f"{me} stops all running trials at the next report\n",
        f"{me} pauses now; continue with: tune resume mine\n",
    ]
    queued = [("add", None), ("stop", "t0000"), ("stop", None), ("pause", None)]
    assert [(c.do, c.trial) for c in pending_commands(paths)] == queued


def test_pause_without_a_driver_is_refused(tune: Tune) -> None:
    tune.sweep("mine")
    assert tune.refused("pause", "mine") == (
        "mine: no driver runs it, so there is nothing to pause; continue with: tune resume mine\n"
    )
