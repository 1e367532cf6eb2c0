"""`Sweep`: a sweep from Python, before, while and after it runs."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

from results.paths import SweepPaths
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.spec.sweep import SweepSpec
from tuning import api
from tuning.python.arguments import check_arguments
from tuning.python.ask_tell import Asking
from tuning.python.run import Run

if TYPE_CHECKING:
    import pandas as pd

    from results.averaging.soup.scoring import Soup
    from tuning.controller.events import SweepEvents


class Options(api.Changes, total=False):
    """What `Sweep.start`, `run` and `resume` accept; changes are for a sweep that has begun.

    Attributes:
        callbacks: are notified of events, in a thread of this process.
        address: of the Ray cluster to join; None starts one on this machine.
        insecure: join a cluster on another machine without a token.
    """

    callbacks: Iterable[SweepEvents]
    address: str | None
    insecure: bool


class Sweep(Asking):
    """A sweep, described by the keys of a sweep file.

    It has the records, the folder and the commands of a sweep that `tune run` starts: either one
    continues what the other began. The session runs in a process of its own, so it survives the
    notebook; its output is in `driver.log` of the folder.

    >>> import tuning
    >>> sweep = tuning.Sweep(
    ...     trainable="digits",
    ...     metric="loss",
    ...     space={"learning_rate": tuning.loguniform(1e-4, 1e-1)},
    ...     budget=tuning.Budget(trials=20),
    ... )
    >>> sweep.name, sweep.spec.budget.trials
    ('digits', 20)
    >>> tuning.Sweep("digits", "loss", {"x": tuning.uniform(1, 0)})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    search_spaces.errors.UserError: Sweep(space): space.x: uniform needs lower < upper, got ...

    Args:
        trainable: a name as in a sweep file, or a function or class. A function of a notebook or of
            the main script is stored by value in the folder's `code/`. None with a `command`.
        metric: reported metric to optimize, or a list of several.
        space: searched parameters, each with a domain.
        mode: `min` or `max`, or one for each metric; default: min, but required for a metric whose
            name says that more is better, like accuracy.
        budget: of the sweep, as `tuning.Budget(trials=20)`.
        name: of the sweep; default: the trainable's, with a number if that one is taken.
        storage: folder of all sweeps; default: `$TUNE_STORAGE`, or ./sweeps.
        scheduler: default: none, so that every trial runs to its end.
        keys: the other keys of a sweep file: fixed, search, resources, checkpoint, seed, …

    Raises:
        UserError: all mistakes at once, a line each, with the name of the argument.
    """

    def __init__(
        self,
        trainable: str | Callable[..., Any] | type | None = None,
        metric: str | Sequence[str] | None = None,
        space: Mapping[str, Any] | None = None,
        *,
        mode: str | Sequence[str] | None = None,
        budget: Mapping[str, Any] | None = None,
        name: str | None = None,
        storage: str | Path | None = None,
        scheduler: Mapping[str, Any] | str | None = None,
        **keys: Any,
    ) -> None:
        folder = tempfile.mkdtemp(prefix="tune-code-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        keys |= {"metric": metric, "space": space, "mode": mode, "budget": budget, "name": name}
        keys |= {"scheduler": scheduler, "storage": storage}
        self._loaded = check_arguments(trainable, keys, Path(folder))
        self._paths: SweepPaths | None = None

    @classmethod
    def of(cls, loaded: LoadedSweep | None, paths: SweepPaths | None) -> Self:
        """The sweep of a folder, or of a file; see `tuning.load` and `tuning.load_yaml`."""
        self = cls.__new__(cls)
        self._loaded, self._paths = loaded, paths  # type: ignore[assignment]
        return self

    def __repr__(self) -> str:
        return f"<tuning.Sweep {self._paths.root if self._paths else f'{self.name}, not started'}>"

    @property
    def spec(self) -> SweepSpec:
        """The checked content of the sweep file; that of the folder once it has started."""
        from results.records.spec_file import read_spec

        return read_spec(self._paths) if self._paths else self._loaded.spec

    @property
    def name(self) -> str:
        """The sweep's name."""
        return self._paths.name if self._paths else self._loaded.spec.name

    @property
    def folder(self) -> Path:
        """The sweep's folder; `tune resume FOLDER` continues it.

        Raises:
            UserError: the sweep has not started.
        """
        return self._require_begun().root

    def _require_begun(self) -> SweepPaths:
        if self._paths is None:
            raise UserError(f"sweep {self.name} has not started; call run() or start()")
        return self._paths

    def start(self, **options: Unpack[Options]) -> Run:
        """Run the sweep in the background; a sweep that has begun is continued.

        Args:
            options: see `Options`.

        Returns:
            The handle of the session.

        Raises:
            UserError: see `tuning.run` and `tuning.resume`.
        """
        from tuning.cluster.connection import check_cluster_auth

        callbacks, address = options.pop("callbacks", ()), options.pop("address", None)
        insecure = options.pop("insecure", False)
        changes = cast("api.Changes", options)  # what is left
        check_cluster_auth(address, insecure)
        if self._paths is None:
            if changes:
                raise UserError(f"sweep {self.name} has not started: change its arguments instead")
            created = api.create(self._loaded, address=address)
            run = Run(created, callbacks, address=address, insecure=insecure, new=True)
            self._paths = created
            return run
        api.amend(str(self._paths.root), **changes)
        accepted = changes.get("accept_damage", False)
        return Run(self._paths, callbacks, address=address, insecure=insecure, accepted=accepted)

    def run(self, *, live: bool | None = None, **options: Unpack[Options]) -> Self:
        """Run the sweep, or continue it, until its budget is spent.

        Ctrl-C, or the interruption of the notebook's cell, ends the session and keeps checkpoints.

        Args:
            live: whether to show a table; default: in a terminal and in a notebook.
            options: see `Options`.

        Raises:
            UserError: see `start`; or the session ended and no trial has a value.
        """
        from tuning.python.live import live_view

        options["callbacks"] = [*options.get("callbacks", ()), *live_view(live)]
        self.start(**options).finish()
        return self

    def resume(self, *, live: bool | None = None, **options: Unpack[Options]) -> Self:
        """Continue the sweep, with more trials (`trials="+10"`) or other changes; see `run`."""
        self._require_begun()
        return self.run(live=live, **options)

    @property
    def trials(self) -> pd.DataFrame:
        """One row per trial, best first, also while it runs; columns as in `results.load`."""
        from results.analysis.dataframes import load as load_tables

        return load_tables(self.folder).trials

    def best(self) -> dict[str, Any]:
        """The winner: `trial`, `value`, `params`, `config`, `checkpoint`, `why` and more.

        Raises:
            UserError: no trial has a value.
        """
        from results.analysis.selection import describe_winner, select_winner
        from results.records.integrity import check_records

        found = check_records(self._require_begun())
        found.require()
        spec = self.spec
        return describe_winner(found.readable, spec, select_winner(found.readable, spec))

    def add(self, **params: Any) -> None:
        """Queue one configuration; the searcher proposes the parameters that are missing.

        Raises:
            UserError: a value is not in the space.
        """
        from tuning.controller.commands import add_params

        add_params(self._require_begun(), params)

    def average(
        self, top: int = 5, method: str = "greedy", *, force: bool = False, **options: Any
    ) -> Soup:
        """Average the weights of the best trials, and compare the average with the best one.

        Args:
            top: number of trials.
            method: see docs/averaging.md.
            force: also average models that started from different or unknown weights.
            options: of the method.

        Raises:
            UserError: fewer than two trials have weights that can be averaged.
        """
        from tuning.evaluation.average import AverageOptions, ModelChoice, average_models, method_of

        made = method_of(method, [f"{key}={value}" for key, value in options.items()], None)
        request = AverageOptions(made, force=force)
        return average_models(self._trusted, self.spec, ModelChoice(top), request)[0]

    def export(
        self,
        to: str = "hf",
        *,
        quant: str | None = None,
        trial: str | None = None,
        soup: str | None = None,
        verify: bool = True,
        force: bool = False,
    ) -> Path:
        """Write the winner, a trial or an average in another format, and verify the copy.

        Returns:
            The folder.

        Raises:
            UserError: the trainable or this machine does not have the format.
        """
        from tuning.evaluation.export_model import check_formats, export_selected
        from tuning.evaluation.load_model import select_model

        name, *others = check_formats(to, quant)
        if others or name == "mlflow":
            raise UserError(f"export({to!r}): takes one format that is a folder; see tune export")
        picked = select_model(self._trusted, trial, soup, "export")
        return export_selected(picked, name, verify, force)[0]

    def _created(self) -> tuple[SweepPaths, SweepSpec]:
        self._paths = self._paths or api.create(self._loaded)
        return self._trusted, self.spec

    @property
    def _trusted(self) -> SweepPaths:
        from results.sweep_folder.trust import require_trust

        require_trust(self._require_begun(), False)
        return self._require_begun()
