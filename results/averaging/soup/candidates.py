"""Find the models that may be averaged: trials, checkpoints of a trial, or federated clients."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.analysis.leaderboard import read_leaderboard
from results.checkpoints.commit import (
    Checkpoint,
    CheckpointError,
    ReadCheckpoints,
    newest_intact,
    verify_all,
)
from results.checkpoints.tensor_layout import weights_file
from results.paths import SweepPaths
from results.records.trial import read_reports
from results.sweep_folder.folder import sweep_argument
from results.trial_paths import ADAPTER, LINEAGE
from search_spaces.errors import UserError, suggest
from search_spaces.spec.sweep import SweepSpec

log = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
CLIENTS = "clients"
"""Folder in a federated trial's checkpoint, which holds one model folder per client."""


@dataclass(frozen=True)
class Candidate:
    """A model that may be averaged.

    Attributes:
        label: the trial id; `t0003@120` for one of its checkpoints, `t0003@120/00002` for a client.
        value: the search metric of the model; NaN where it is unknown.
        folder: a checkpoint, or a client's folder in one.
        sha256: of the weights' file.
        merged: folder of the whole model, where `folder` holds an adapter of it only.
    """

    label: str
    value: float
    folder: Path
    sha256: str
    merged: Path | None = None

    @property
    def trial_id(self) -> str:
        """The trial whose configuration the model has."""
        return self.label.partition("@")[0]

    @property
    def weights(self) -> Path:
        """Its safetensors file, or the index of the shards."""
        return weights_file(self.merged or self.folder, WEIGHTS)

    @property
    def is_adapter(self) -> bool:
        """Whether the checkpoint holds an adapter instead of a whole model."""
        return (self.folder / ADAPTER).is_file()

    @property
    def lineage(self) -> dict[str, Any]:
        """Content of its `lineage.json`; empty where there is none."""
        try:
            content = json.loads((self.folder / LINEAGE).read_text())
        except (OSError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    @property
    def init(self) -> str | None:
        """Digest of the weights from which it started."""
        return digest if isinstance(digest := self.lineage.get("init"), str) else None


def best_trials(
    paths: SweepPaths, spec: SweepSpec, top: int, models: ReadCheckpoints = verify_all
) -> list[Candidate]:
    """The best trials that have an intact checkpoint with weights, best first, at most `top`.

    Args:
        models: the checkpoints of a trial, as folders with the weights.

    Raises:
        UserError: there is none.
    """
    found: list[Candidate] = []
    for line in read_leaderboard(paths, spec.metric, spec.mode):
        if line.value is None or not line.record.eligible or len(found) == top:
            continue
        checkpoint = newest_intact(paths.trial(line.record.id), models)
        if checkpoint and (one := _candidate(checkpoint, line.record.id, line.value)):
            found.append(one)
        else:
            log.warning("trial %s left out: no intact checkpoint with weights", line.record.id)
    if not found:
        raise UserError(
            f"{paths.root}: no trial has both a finite '{spec.metric}' and an intact checkpoint "
            f"with {WEIGHTS}; see: tune show {sweep_argument(paths)}"
        )
    return found


def named_trials(
    paths: SweepPaths, spec: SweepSpec, trials: Sequence[str], models: ReadCheckpoints = verify_all
) -> list[Candidate]:
    """The trials with these ids, in this order.

    Raises:
        UserError: one of them does not exist, is given twice or alone, or `best_trials` could not
            return it.
    """
    ids = paths.trial_ids()
    for unknown in (t for t in trials if t not in ids):
        raise UserError(f"{paths.name}: no trial '{unknown}'{suggest(unknown, ids)}")
    by_id = {c.label: c for c in best_trials(paths, spec, len(ids), models)}
    for useless in set(trials) - by_id.keys():
        raise UserError(
            f"{paths.name}: trial {useless} has no finite '{spec.metric}' or no intact checkpoint "
            f"with {WEIGHTS}; see: tune show {sweep_argument(paths)} {useless}"
        )
    if len(set(trials)) < max(2, len(trials)):
        raise UserError(f"--trials {','.join(trials)}: must be two or more different trials")
    return [by_id[t] for t in trials]


def last_checkpoints(
    paths: SweepPaths,
    spec: SweepSpec,
    trial_id: str,
    last: int,
    models: ReadCheckpoints = verify_all,
) -> list[Candidate]:
    """The last intact checkpoints of one trial, oldest first (LAWA: Kaddour 2022, 2209.14981).

    Raises:
        UserError: there are fewer than two.
    """
    trial = paths.trial(trial_id)
    reported = {r.step: r.metrics.get(spec.metric, math.nan) for r in read_reports(trial)}
    found: list[Candidate] = []
    for checkpoint in models(trial):
        if len(found) == last:
            break
        if isinstance(checkpoint, CheckpointError):
            log.warning("checkpoint skipped, %s", checkpoint)
            continue
        value = reported.get(checkpoint.step, math.nan)
        if one := _candidate(checkpoint, f"{trial_id}@{checkpoint.step}", value):
            found.append(one)
    if len(found) < 2:
        count = "one" if found else "no"
        raise UserError(
            f"{paths.name}: trial {trial_id} has {count} intact checkpoint, and an average needs "
            "two; checkpoint.keep in the sweep file sets how many are kept"
        )
    return found[::-1]


def federated_clients(paths: SweepPaths, trial_id: str) -> list[Candidate]:
    """The clients' models in the newest intact checkpoint of a federated trial.

    Raises:
        UserError: the checkpoint holds fewer than two.
    """
    newest = newest_intact(paths.trial(trial_id))
    files = newest.manifest.files if newest else {}
    names = sorted({n.split("/")[1] for n in files if n.startswith(f"{CLIENTS}/")})
    if newest is None or len(names) < 2:
        raise UserError(
            f"{paths.name}: the newest checkpoint of trial {trial_id} holds no clients; a "
            "federated trial keeps them with keep_clients: true"
        )
    return [
        Candidate(
            f"{trial_id}@{newest.step}/{name}",
            math.nan,
            newest.folder / CLIENTS / name,
            files[f"{CLIENTS}/{name}/{WEIGHTS}"].sha256,
        )
        for name in names
    ]


def parse_weights(candidates: Sequence[Candidate], text: str, spec: SweepSpec) -> list[float]:
    """Weights of candidates: `metric`, `examples`, or numbers separated by commas.

    `metric`: proportional to a model's value, or to its inverse where less is better. `examples`:
    the number of examples on which a federated client trained (McMahan et al. 2017).

    Raises:
        UserError: the text is none of these, or a candidate lacks the number.
    """
    if text == "metric":
        values = [c.value for c in candidates]
        if not all(0 < value < math.inf for value in values):
            raise UserError(
                f"--weights metric: needs a '{spec.metric}' above 0 for all models, got {values}"
            )
        return values if spec.mode == "max" else [1 / value for value in values]
    if text == "examples":
        counts = [c.lineage.get("examples") for c in candidates]
        if not all(isinstance(count, int) for count in counts):
            raise UserError(
                "--weights examples: needs --clients; other models have no number of examples"
            )
        return [float(str(count)) for count in counts]
    try:
        return [float(word) for word in text.split(",")]
    except ValueError:
        raise UserError(
            f"--weights: must be metric, examples or numbers like 0.5,0.5, got {text}"
        ) from None


def _candidate(checkpoint: Checkpoint, label: str, value: float) -> Candidate | None:
    """The model of a checkpoint; None if it holds neither weights nor an adapter."""
    files = checkpoint.manifest.files
    entry = files.get(WEIGHTS) or files.get(ADAPTER)
    return Candidate(label, value, checkpoint.folder, entry.sha256) if entry else None
