"""Sweeps in a storage, which other sweeps learn from."""

from results.storage.fencing import NullFence
from search_spaces.loading.sweep_file import load_sweep
from tests.tuning.simulate import finish, make_spec, new_sweep
from tuning.controller.session import open_sweep


def sweep(tmp_path, name="mine", run=True, **changes):
    """Create a sweep in a storage; with `run`, run it to its end."""
    spec = make_spec(**{"name": name, "tracking": {"name": "none"}, **changes})
    paths = new_sweep(spec, tmp_path)
    if run:
        finish(session(paths))
    return paths


def session(paths):
    """Open a session of a sweep, as the driver does."""
    with open_sweep(paths, load_sweep(paths.spec).spec) as run:
        pass
    run.table.fence = NullFence()
    return run


def warm_start(*names, reuse=False, **search):
    return {"search": {"startup_trials": 3, "warm_start": list(names), "reuse": reuse, **search}}


def sampler_findings(run):
    """The findings that the sampler sees, oldest first."""
    return [t for t in run.study.sampler_trials if t.number < 0]
