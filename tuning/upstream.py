"""Every private part of another package that `tuning` uses or replaces.

The versions that have these parts are bounded in `pyproject.toml`. `tests/test_upstream.py` checks
each part on the installed classes, and that no other is used. It passes with Ray 2.60.0, torch
2.13.0, transformers 5.23.0 and Optuna 5.0.0; a nightly job installs the newest that are allowed.
"""

PRIVATE: dict[str, str] = {
    # controller/ray_tune/listener.py replaces this manager, and what is looked up in it.
    "ray.tune.execution.tune_controller:TuneController._actor_manager": "attribute",
    "ray.air.execution._internal.actor_manager:RayActorManager"
    "._live_actors_to_ray_actors_resources": "attribute",
    "ray.air.execution._internal.actor_manager:RayActorManager.next": "(self, timeout=None)",
    "ray.air.execution._internal.actor_manager:RayActorManager.add_actor": (
        "(self, cls, kwargs, resource_request, *, on_start=None, on_stop=None, on_error=None)"
    ),
    # controller/ray_tune/patches.py removes finished trials from these.
    "ray.tune.execution.tune_controller:TuneController._stopped_trials": "attribute",
    "ray.tune.execution.tune_controller:TuneController._trials_to_cache": "attribute",
    # controller/ray_tune/driver.py gets the controller that a scheduler is shown.
    "ray.tune.execution.tune_controller:TrialRunnerWrapper._tune_controller": "attribute",
    # controller/ray_tune/patches.py keeps MLflow and others from being imported.
    "ray.air._internal.usage:tag_callbacks": "(callbacks)",
    # cluster/local_cluster.py sets a token and the loopback interface.
    "ray._private.ray_constants:ENABLE_RAY_CLUSTER": "attribute",
    "ray._raylet:AuthenticationTokenLoader": "attribute",
    # cluster/connection.py asks a cluster with a wrong token. trainables/launch/node_notices.py
    # passes on that a machine is taken away.
    "ray._raylet:GcsClient": "attribute",
    # cluster/ray_processes.py starts a local cluster with fewer processes.
    "ray._private.node:Node.start_api_server": ("(self, *, include_dashboard, raise_on_failure)"),
    "ray._private.parameter:RayParams": "attribute",
    # It chooses where the workers look for modules.
    "ray.job_config:JobConfig._runtime_env_has_working_dir": "(self)",
    # It keeps the driver's signals from these processes, and the driver's own handler.
    "ray._private.services:ConsolePopen": "attribute",
    "ray._private.utils:set_sigterm_handler": "(sigterm_handler)",
    # cluster/ray_processes.py writes into a file what Ray prints of its processes.
    "ray._private.worker:print_to_stdstream": "(data, ignore_prefix)",
    "ray._private.state:available_resources_per_node": "()",
    # search/findings.py shows a sampler the trials of other sweeps.
    "optuna.study:Study._get_trials": "(self, deepcopy=True, states=None, use_cache=False)",
    # search/optuna_space.py samples a whole proposal before it writes any parameter.
    "optuna.distributions:BaseDistribution._contains": "(self, param_value_in_internal_repr)",
    # search/study/proposal_sampler.py puts trials of other sweeps into the first generation.
    "optuna.samplers:BaseGASampler._get_generation_key": "()",
    # search/study/journal.py drops the positions of entries that were read.
    "optuna.storages.journal:JournalFileBackend._log_number_offset": "attribute",
    # search/study/journal.py writes entries that Optuna reads.
    "optuna.storages.journal._storage:JournalOperation.CREATE_TRIAL": "attribute",
    "optuna.storages.journal._storage:JournalOperation.SET_TRIAL_INTERMEDIATE_VALUE": "attribute",
    "optuna.storages.journal._storage:JournalOperation.SET_TRIAL_STATE_VALUES": "attribute",
}
"""`"module:Class.name"` to its signature, or `"attribute"` for what is only referred to."""
