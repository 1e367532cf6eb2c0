"""Sweeps that exist, and sweep files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

from search_spaces.loading.sweep_file import load_sweep
from tuning import api
from tuning.python.sweep import Sweep


def load(sweep: str | Path, overrides: Sequence[str] = (), *, storage: str | None = None) -> Sweep:
    """A sweep that exists, by its name or folder; it may be running.

    A sweep file in its place is deprecated: `load_yaml` takes it.

    >>> import tuning
    >>> tuning.load("nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    search_spaces.errors.UserError: ...

    Raises:
        UserError: there is none.
    """
    from results.sweep_folder.folder import find_sweep

    if Path(sweep).is_file():
        text = "tuning.load of a sweep file is now tuning.load_yaml; until version 0.3 it works"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return api.load(sweep, overrides)  # type: ignore[return-value]
    return Sweep.of(None, find_sweep(str(sweep), storage))


def load_yaml(path: str | Path, overrides: Sequence[str] = ()) -> Sweep:
    """The sweep of a sweep file, not started.

    >>> import tempfile, tuning
    >>> from pathlib import Path
    >>> file = Path(tempfile.mkdtemp()) / "mine.yaml"
    >>> _ = file.write_text(
    ...     "{name: mine, trainable: digits, metric: loss, scheduler: {name: none}, "
    ...     "space: {learning_rate: {uniform: [0, 1]}}, budget: {trials: 3}}"
    ... )
    >>> tuning.load_yaml(file, ["budget.trials=5"]).spec.budget.trials
    5

    Args:
        path: of the YAML file.
        overrides: `a.b=c` texts, applied before the check.

    Raises:
        UserError: every mistake in the file at once, a line each.
    """
    return Sweep.of(load_sweep(Path(path), overrides), None)
