"""What each kind of user code is offered, and what not, for `tune plan` and the documents.

Names are those of calls, of environment variables and of keys of the sweep file.
"""

from __future__ import annotations

from collections.abc import Callable

from search_spaces.spec.sweep import SweepSpec

CONTEXT = "ray.tune.get_context()"
_SEARCH = "is a search of its own; name the function or class that it tunes"
_SAVES = "decides itself when it saves; remove it"
_FRESH = "has no effect: each attempt has the trainer's own processes; remove it"
_FIXED_WORKERS = "cannot change its number of workers; give one number"
_ONE_WORKER = (
    "takes one worker; for several, write a loop for Ray Train, which reports by ray.train.report"
)
_SWEEP_RESOURCES = "is not offered: the resources are those of the sweep file"
_ONE_RANK = "is not offered: a trial of Ray Tune has one worker"

_AIR = "ray.air.session.report"
_GONE = "has no effect; call ray.{}.report"
_KEYWORDS = "is of Ray 1; report one dict: ray.{}.report({{…}})"

_LOOP = {
    _AIR: _GONE.format("train"),
    "ray.train.report(loss=…)": _KEYWORDS.format("train"),
    "ray.tune.report": "has no effect in a Ray Train loop; call ray.train.report",
    "ray.tune.get_checkpoint": "has no effect in a Ray Train loop; call ray.train.get_checkpoint",
    "ray.train.report(validation=…)": "raises an error, as without a validation_config",
    "ray.tune.Tuner": _SEARCH,
    "ray.tune.run": _SEARCH,
    "resources.workers: {min, max}": _FIXED_WORKERS,
    "checkpoint.every": f"has no effect: a Ray Train loop {_SAVES}",
    "asha_promote, pbt, pb2": "continue trials from checkpoints; use asha",
}

OFFERED: dict[str, dict[str, str]] = {
    "Ray Train loop": {
        "ray.train.report": "the metrics of rank 0, and a checkpoint, are recorded",
        "ray.train.get_checkpoint": "the newest intact checkpoint of the trial",
        "ray.train.get_context": "ranks, sizes, node, and a folder of the attempt",
        "ray.train.get_all_reported_checkpoints": "those that the sweep keeps",
        "ray.train.get_preemption_info": "the ranks that leave; not the names of their machines",
        "ray.train.collective": "barrier and broadcast among the workers of the trial",
        "ray.train.torch, lightning, huggingface": "Ray Train's own functions",
        "ray.train.get_dataset_shard": "where the trainable is a function that builds the trainer",
        'config["seed"]': "the seed of the trial, if the file reads it and the sweep has none",
    },
    "function that builds a trainer": {
        "fit": "starts the trainer's workers, with its backend, data sets and callbacks",
        "ray.train.get_dataset_shard": "the trainer's",
        "the loop": "as a Ray Train loop",
    },
    "Ray Tune function": {
        "ray.tune.report": "a report; the function ends there when the trial ends",
        "ray.tune.get_checkpoint": "the newest intact checkpoint of the trial",
        f"{CONTEXT}.get_trial_id": "id of the trial in the sweep",
        f"{CONTEXT}.get_trial_name": "the same",
        f"{CONTEXT}.get_trial_dir": "working directory of the trial",
        f"{CONTEXT}.get_experiment_name": "name of the sweep's folder",
        "return, yield": "a number or a dict is a report",
        'config["seed"]': "the seed of the trial, if the file reads it and the sweep has none",
    },
    "Ray Tune class": {
        "setup, step, cleanup": "called as by Ray Tune; what step returns is a report",
        "save_checkpoint, load_checkpoint": "a folder or a dict; needed by schedulers that pause",
        "iteration, training_iteration": "the step of the last report",
        "trial_id, trial_name": "id of the trial in the sweep",
        "reset_config": "never called: each trial has an object of its own",
        "done, should_checkpoint": "keys of what step returns: the end, and a checkpoint now",
    },
    "command": {
        "tune_report.report": "a report, and perhaps a checkpoint; returns the scheduler's answer",
        "tune_report.checkpoint_dir": "the newest intact checkpoint, by the name that it was given",
        "$TUNE_REPORTS, $TUNE_ANSWERS": "the same for other languages",
        "$TUNE_CHECKPOINT_DIR": "the same for other languages",
        "$TUNE_PARAM_<NAME>, $TUNE_PARAMS_FILE": "the parameters",
        "{seed}, {workers}, {nodes}, {node_rank}, {master_addr}, {master_port}": "as arguments",
        "report_from": "metrics in the output, in lines of JSON, in event files of TensorBoard",
        "SIGTERM": "before the end, with `failure.stop_grace` to save a last checkpoint",
        "python, python3": "those of the environment of `tune`",
        "cwd: project": "a view of the script's folder as working directory",
    },
}
"""Kind of code to name to what it does in a sweep."""

REFUSED: dict[str, dict[str, str]] = {
    "Ray Train loop": _LOOP,
    "function that builds a trainer": {
        **_LOOP,
        "resources.isolation: lane": _FRESH,
        "resources.max_trials_per_lane": _FRESH,
    },
    "Ray Tune function": {
        _AIR: _GONE.format("tune"),
        "ray.tune.report(loss=…)": _KEYWORDS.format("tune"),
        "ray.tune.Tuner": _SEARCH,
        "ray.tune.run": _SEARCH,
        f"{CONTEXT}.get_trial_resources": _SWEEP_RESOURCES,
        f"{CONTEXT}.get_metadata": "is not offered: give the values under fixed",
        f"{CONTEXT}.get_storage": "is not offered: checkpoints lie in the trial's folder",
        **{
            f"{CONTEXT}.get_{name}": _ONE_RANK
            for name in ("world_size", "world_rank", "local_rank", "local_world_size", "node_rank")
        },
        "resources.workers": _ONE_WORKER,
        "checkpoint.every": f"has no effect: a Ray Tune function {_SAVES}",
    },
    "Ray Tune class": {
        "default_resource_request": _SWEEP_RESOURCES,
        "log_result": "is never called: the sweep records the reports",
        "export_model": "is never called: name user_code.model",
        "resources.workers": _ONE_WORKER,
    },
    "Optuna objective": {"resources.workers": "takes one worker"},
    "program that asks and tells": {"resources.workers: {min, max}": _FIXED_WORKERS},
    "command": {
        "resources.workers: {min, max}": _FIXED_WORKERS,
        "{args} for a flag": "gives it a value; let the option take one",
        "type=bool": "is true for every text, also 'false'",
    },
}
"""Kind of code to name to what `tune plan` says of it."""

SETTINGS: dict[str, Callable[[SweepSpec], bool]] = {
    "resources.isolation: lane": lambda spec: spec.resources.isolation == "lane",
    "resources.max_trials_per_lane": lambda spec: spec.resources.max_trials_per_lane is not None,
    "checkpoint.every": lambda spec: spec.checkpoint.every > 1,
}
"""Setting that may be refused to whether a sweep has it."""
