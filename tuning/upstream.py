"""Every private part of another package that `tuning` uses or replaces.

The versions that have these parts are bounded in `pyproject.toml`. `tests/test_upstream.py` checks
each part on the installed classes, and that no other is used.
"""

PRIVATE: dict[str, str] = {
    # search/transfer/informed_study.py shows a sampler the trials of other sweeps.
    "optuna.study:Study._get_trials": "(self, deepcopy=True, states=None, use_cache=False)",
    # search/optuna_space.py samples a whole proposal before it writes any parameter.
    "optuna.study:Study._storage": "attribute",
    "optuna.trial:Trial._trial_id": "attribute",
    "optuna.trial:FrozenTrial._trial_id": "attribute",
    "optuna.distributions:BaseDistribution._contains": "(self, param_value_in_internal_repr)",
    # search/study.py puts trials of other sweeps into the first generation.
    "optuna.samplers:BaseGASampler._get_generation_key": "()",
    # search/transfer/warm_cmaes.py starts CMA-ES from trials of other sweeps.
    "optuna.samplers:CmaEsSampler._source_trials": "attribute",
    # search/journal.py forgets the positions of entries that were read.
    "optuna.storages.journal:JournalFileBackend._log_number_offset": "attribute",
}
"""`"module:Class.name"` to the expected signature, or `"attribute"` for an attribute or a class that
is only referred to.
"""
