"""Sweeps that exist, and sweep files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from search_spaces.loading.sweep_file import load_sweep
from tuning.python.sweep import Sweep


def load(sweep: str | Path, *, storage: str | None = None) -> Sweep:
    """A sweep that exists, by its name or folder; it may be running.

    >>> import tuning
    >>> tuning.load("nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    search_spaces.errors.UserError: ...

    Raises:
        UserError: there is none.
    """
    from results.sweep_folder.folder import find_sweep

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
