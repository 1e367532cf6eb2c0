"""Runs in Syne Tune's environment and imports nothing from this project: see `syne_tune.py`."""

import datetime
import json
import os
import sys
import time

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what Syne Tune prints must not get between the answers

from syne_tune.backend.trial_status import Trial  # noqa: E402
from syne_tune.config_space import lograndint, loguniform, randint, uniform  # noqa: E402
from syne_tune.optimizer.baselines import MOBSTER, HyperTune  # noqa: E402

KINDS = {
    "uniform": uniform,
    "loguniform": loguniform,
    "randint": lambda low, high: randint(low, high - 1),
    "lograndint": lambda low, high: lograndint(low, high - 1),
}


def make(request):
    space = {
        n: KINDS[kind](*bounds) for n, f in request["space"].items() for kind, bounds in f.items()
    }
    space["epochs"] = request["epochs"]
    return {"HyperTune": HyperTune, "MOBSTER": MOBSTER}[request["method"]](
        space,
        metric="error",
        mode="min",
        resource_attr="epoch",
        max_resource_attr="epochs",
        type="promotion",
        grace_period=1,
        reduction_factor=3,
        random_seed=request["seed"],
        search_options={"debug_log": False},
    )


def suggest(scheduler, trials):
    said = scheduler.suggest(len(trials))
    if said is None:
        return None
    if said.spawn_new_trial_id:
        number = len(trials)
        trials[str(number)] = Trial(number, said.config, datetime.datetime.now())
        scheduler.on_trial_add(trials[str(number)])
    else:
        number = said.checkpoint_trial_id
    config = {k: v for k, v in trials[str(number)].config.items() if k != "epochs"}
    return {"trial": str(number), "config": config}


def report(scheduler, trial, request):
    result = {"epoch": request["epoch"], "error": request["error"]}
    decision = scheduler.on_trial_result(trial, result)
    if decision == "CONTINUE":
        return True
    if decision == "STOP":
        scheduler.on_trial_complete(trial, result)
    return False


def answer(said):
    print(json.dumps({"said": said, "cpu": time.process_time()}), file=answers, flush=True)


def main():
    scheduler, trials = make(json.loads(sys.stdin.readline())), {}
    answer(True)
    for line in sys.stdin:
        request = json.loads(line)
        if "next" in request:
            said = suggest(scheduler, trials)
        else:
            said = report(scheduler, trials[request["trial"]], request)
        answer(said)


if __name__ == "__main__":
    main()
