"""A sweep that is changed after it began: more budget, another space, other scheduler settings.

The frozen `sweep.yaml` is replaced as a whole, the old one is kept. Trials that still fit the new
space stay evidence for the search; of the others only their numbers remain taken.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from results.paths import SweepPaths
from results.records.spec_file import is_damaged, read_spec
from results.records.trial import read_trials
from results.storage.atomic import fsync_dir, write_atomic
from search_spaces.checksum import CHECKSUM_PREFIX, add_yaml_checksum
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep, dump_sweep, load_sweep
from search_spaces.spec.duration import parse_duration
from search_spaces.spec.sweep import SweepSpec
from tuning.controller.preflight import preflight
from tuning.controller.sweep_dir.folder import total_elapsed_s
from tuning.controller.sweep_dir.lock import acquire_lock
from tuning.controller.sweep_dir.warm_start import source_sweeps
from tuning.search.auto_scheduler import frozen_as, with_scheduler
from tuning.search.compatibility import fitting

FOR_GOOD = {
    "name": "name",
    "trainable": "trainable",
    "metric": "metrics",
    "mode": "modes",
    "seed": "seed",
}
"""What a sweep is about: its trials could not be compared if it changed."""
_TASK = {"space", "fixed"}


@dataclass(frozen=True)
class Amendment:
    """What a change came to.

    Attributes:
        overrides: `a.b=c` texts that were applied.
        misfits: ids of trials that the changed space could not have.
        trials: how many there were.
    """

    overrides: tuple[str, ...]
    misfits: tuple[str, ...]
    trials: int

    def __str__(self) -> str:
        text = f"changed: {', '.join(self.overrides)}"
        if not self.misfits:
            return text
        names = ", ".join(self.misfits[:10]) + ", …" * (len(self.misfits) > 10)
        return (
            f"{text}\n{len(self.misfits)} of {self.trials} earlier trials no longer fit, and the "
            f"search learns nothing from them: {names}"
        )


def amend_sweep(
    paths: SweepPaths, trials: str | None, time: str | None, overrides: Sequence[str]
) -> Amendment | None:
    """Change a sweep that nobody drives; None when nothing is asked for.

    Args:
        paths: of the sweep.
        trials: of the budget; `+N` is more than there are.
        time: of the budget, in seconds or like `2h`; `+2h` is more than there is.
        overrides: `a.b=c` texts.

    Raises:
        UserError: somebody drives it, the changed sweep is no valid one, or changes what it is
            about.
    """
    if not (trials or time or overrides):
        return None
    with acquire_lock(paths.lock):
        if is_damaged(paths):
            raise UserError(
                f"{paths.spec}: damaged, or edited; mend it first, without a change: "
                f"tune resume {paths.name}"
            )
        old = read_spec(paths)
        texts = (*overrides, *_budget(paths, old, trials, time))
        loaded = load_sweep(paths.spec, texts)
        _refuse(old, loaded.spec)
        preflight(loaded)
        source_sweeps(loaded.spec, str(paths.root.parent))
        _replace(paths, old, loaded)
        records = read_trials(paths)
        misfits = tuple(r.id for r in records if fitting(loaded.spec, r) is None)
        return Amendment(texts, misfits, len(records))


def _budget(paths: SweepPaths, spec: SweepSpec, trials: str | None, time: str | None) -> list[str]:
    texts = []
    if trials is not None:
        there = max(spec.budget.trials or 0, len(paths.trial_ids()))
        texts.append(f"budget.trials={_trials(trials, there)}")
    if time is not None:
        seconds = _seconds(time.removeprefix("+"), time)
        if time.startswith("+"):
            seconds += max(spec.budget.time or 0.0, total_elapsed_s(paths))
        texts.append(f"budget.time={seconds:g}")
    return texts


def _trials(text: str, there: int) -> int:
    digits = text.removeprefix("+")
    if not digits.isdecimal():
        raise UserError(f"--trials {text}: must be a whole number, or +20 for 20 more")
    return int(digits) + there * text.startswith("+")


def _seconds(text: str, given: str) -> float:
    try:
        return parse_duration(float(text) if text.replace(".", "", 1).isdecimal() else text)
    except ValueError as e:
        raise UserError(f"--time {given}: {e}, or +2h for two hours more") from e


def _refuse(old: SweepSpec, new: SweepSpec) -> None:
    for key, field in FOR_GOOD.items():
        if (before := getattr(old, field)) != getattr(new, field):
            raise UserError(
                f"--set {key}: cannot change in a sweep that has begun ({before!r}); "
                "start another with tune run, and learn from this one with "
                f"--set 'search.warm_start=[{old.name}]'"
            )


def _replace(paths: SweepPaths, old: SweepSpec, loaded: LoadedSweep) -> None:
    """Put the new spec in place of the old one, which is kept.

    A study of another space is put aside too: it is made again from the trials' records.
    """
    before = paths.spec.read_bytes()
    kept = paths.replaced_files(len(list(paths.history.glob("*/sweep.yaml"))) + 1)
    write_atomic(kept / paths.spec.name, before)
    another = old.model_dump(include=_TASK) != loaded.spec.model_dump(include=_TASK)
    if another and paths.study.exists():
        os.replace(paths.study, kept / paths.study.name)
        fsync_dir(kept)
    if old.search.warm_start != loaded.spec.search.warm_start and paths.evidence.exists():
        os.replace(paths.evidence, kept / paths.evidence.name)
        fsync_dir(kept)
    comments = [line for line in before.decode().splitlines() if line.startswith("#")]
    header = [line for line in comments if not line.startswith(CHECKSUM_PREFIX)]
    header += ["# changed by `tune resume`", *(f"# --set {text}" for text in loaded.overrides)]
    header += [note] if (note := frozen_as(loaded.spec)) else []
    text = "\n".join([*header, dump_sweep(with_scheduler(loaded.spec))])
    write_atomic(paths.spec, add_yaml_checksum(text).encode())
