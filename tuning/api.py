"""Sweeps from Python: run and resume. The command line calls the same functions.

Ray, Optuna and the trainables are imported when a function needs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

if TYPE_CHECKING:
    from results.paths import SweepPaths
    from results.sweep_folder.trust import Trust
    from search_spaces.loading.sweep_file import LoadedSweep
    from tuning.controller.events import Interrupt, SweepEvents
    from tuning.controller.sweep import SweepController
    from tuning.search.auto import AutoChoice


def run(
    sweep: str | Path | LoadedSweep,
    *,
    overrides: Sequence[str] = (),
    name: str | None = None,
    storage: str | None = None,
    address: str | None = None,
    insecure: bool = False,
    observers: Iterable[SweepEvents] = (),
    interrupt: Interrupt | None = None,
) -> SweepController:
    """Run a new sweep until its budget is spent or it is interrupted.

    Args:
        sweep: its file, or what `load_sweep` returned.
        overrides: `a.b=c` texts; only with a file.
        name: of the sweep; default: the file's, with a number if that one is taken.
        storage: folder of all sweeps; default: the file's.
        address: of the Ray cluster to join; None starts one on this machine.
        insecure: join a cluster on another machine without a token.
        observers: are notified of events.
        interrupt: ends the session when it is called.

    Raises:
        UserError: a mistake in the file, a taken name, no cluster, or no trial fits the cluster. No
            folder is left behind.
    """
    from tuning.cluster.connection import check_cluster_auth
    from tuning.controller.events import Interrupt
    from tuning.controller.preflight.relative_paths import file_notes
    from tuning.controller.sweep_dir.create import discarded_on_error
    from tuning.search.auto import choose_scheduler

    check_cluster_auth(address, insecure)
    loaded = _loaded(sweep, overrides)
    with interrupt or Interrupt() as stop:
        paths = create(loaded, name=name, storage=storage, address=address)
        with discarded_on_error(paths):
            scheduler = choose_scheduler(loaded.spec)
            notes = file_notes(loaded, files=address is None)
            return _run(paths, scheduler, address, tuple(observers), stop, notes=notes)


def create(
    sweep: str | Path | LoadedSweep,
    *,
    overrides: Sequence[str] = (),
    name: str | None = None,
    storage: str | None = None,
    address: str | None = None,
) -> SweepPaths:
    """Check a new sweep and create its folder; `resume` runs it.

    Args:
        sweep, overrides, name, storage, address: see `run`.

    Raises:
        UserError: a mistake in the file, or a taken name.
    """
    from tuning.controller.preflight.checks import preflight
    from tuning.controller.sweep_dir.create import create_sweep, frozen_spec
    from tuning.search.warm_start import source_sweeps

    loaded = _loaded(sweep, overrides)
    preflight(loaded, files=address is None)
    source_sweeps(frozen_spec(loaded), storage or loaded.spec.storage)
    return create_sweep(loaded, name, storage)


def _loaded(sweep: str | Path | LoadedSweep, overrides: Sequence[str]) -> LoadedSweep:
    from search_spaces.loading.sweep_file import load_sweep

    return load_sweep(Path(sweep), overrides) if isinstance(sweep, (str, Path)) else sweep


class Changes(TypedDict, total=False):
    """What `resume` and `amend` accept besides the sweep.

    Attributes:
        trials: trials in all, or `+20` for 20 more.
        time: wall-clock time in all, or `+2h` for two hours more.
        overrides: `a.b=c` texts, which change the sweep permanently.
        retry_failed: also run failed trials again, after their code was mended.
        accept_damage: go on although records are damaged or incomplete beyond repair.
        storage: see `run`.
        trust: resume a sweep that another user made; or a function that is asked, with a question.
    """

    trials: str | None
    time: str | None
    overrides: Sequence[str]
    retry_failed: bool
    accept_damage: bool
    storage: str | None
    trust: Trust


def resume(
    sweep: str,
    *,
    address: str | None = None,
    insecure: bool = False,
    observers: Iterable[SweepEvents] = (),
    interrupt: Interrupt | None = None,
    **changes: Unpack[Changes],
) -> SweepController:
    """Continue a sweep: unfinished trials continue from their newest checkpoint.

    Args:
        sweep: its name, its folder, or its place in object storage (`s3://bucket/prefix/name`).
        address, insecure, observers, interrupt: see `run`.
        changes: see `Changes`.

    Raises:
        UserError: there is no such sweep, another user made it and it is not trusted, another
            driver holds it, or a change is not possible.
        DamagedRecordsError: records are damaged or incomplete beyond repair.
    """
    from results.records.spec_file import read_spec
    from tuning.cluster.connection import check_cluster_auth
    from tuning.controller.events import Interrupt, Observers
    from tuning.search.auto import choose_scheduler

    check_cluster_auth(address, insecure)
    observers = tuple(observers)
    paths, changed = amend(sweep, **changes)
    if changed:
        Observers(observers).message(changed)
    scheduler, accepted = choose_scheduler(read_spec(paths)), changes.get("accept_damage", False)
    with interrupt or Interrupt() as stop:
        return _run(paths, scheduler, address, observers, stop, accepted)


def amend(sweep: str, **changes: Unpack[Changes]) -> tuple[SweepPaths, str]:
    """Find a sweep, and change it permanently; `resume` runs it.

    Args:
        sweep: see `resume`.
        changes: see `Changes`.

    Returns:
        Its folder, and the changes in words; empty if there are none.

    Raises:
        UserError: see `resume`.
    """
    from results.sweep_folder.sweep_folder import SweepFolder
    from tuning.controller.sweep_dir.amend import amend_sweep

    storage, trust = changes.pop("storage", None), changes.pop("trust", False)
    paths = SweepFolder.open(sweep, storage, writes=True, drives=True, trust=trust).paths
    changed = amend_sweep(
        paths,
        changes.get("trials"),
        changes.get("time"),
        changes.get("overrides", ()),
        retry_failed=changes.get("retry_failed", False),
        accept_damage=changes.get("accept_damage", False),
    )
    return paths, str(changed or "")


def _run(
    paths: SweepPaths,
    scheduler: AutoChoice,
    address: str | None,
    observers: Sequence[SweepEvents],
    interrupt: Interrupt,
    accept_damage: bool = False,
    notes: Sequence[str] = (),
) -> SweepController:
    from results.records.spec_file import read_spec
    from tuning.controller.session import run_session
    from tuning.search.auto import choose_searcher

    spec = read_spec(paths)
    return run_session(
        paths,
        spec,
        address=address,
        observers=observers,
        interrupt=interrupt,
        accept_damage=accept_damage,
        introduction=[
            f"sweep {spec.name} in {paths.root}",
            f"search {choose_searcher(spec)}",
            f"scheduler {scheduler}",
            *notes,
        ],
    )
