"""The models that may go into a soup: where they come from, and whether they fit together."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.analysis.leaderboard import summaries
from results.checkpoints.commit import Checkpoint, CheckpointError, newest_intact, verify
from results.checkpoints.tensor_layout import layout_mismatch, read_layout, weights_file
from results.paths import SweepPaths
from results.records.trial import read_reports
from search_spaces.errors import UserError, suggest

log = logging.getLogger(__name__)

WEIGHTS, LINEAGE, ADAPTER = "model.safetensors", "lineage.json", "adapter_config.json"
CLIENTS = "clients"
"""Folder in a federated trial's checkpoint, which holds one model folder per client."""

_ADAPTER_KEYS = ("peft_type", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern")
"""Of an adapter's configuration, what makes its factors an update of the weights."""


@dataclass(frozen=True)
class Candidate:
    """A model that may go into a soup.

    Attributes:
        label: the trial; `t0003@120` for one of its checkpoints, `t0003@120/00002` for a client.
        value: the metric by which the search ranks it; NaN where that is not known.
        folder: a checkpoint, or a client's part of one.
        sha256: of the weights' file.
    """

    label: str
    value: float
    folder: Path
    sha256: str

    @property
    def trial_id(self) -> str:
        """Whose configuration the model has."""
        return self.label.partition("@")[0]

    @property
    def weights(self) -> Path:
        """Its safetensors file, or the index of the shards."""
        return weights_file(self.folder, WEIGHTS)

    @property
    def lineage(self) -> dict[str, Any]:
        """What its `lineage.json` says; empty where there is none."""
        try:
            found = json.loads((self.folder / LINEAGE).read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def init(self) -> str | None:
        """Digest of the weights from which it started."""
        found = self.lineage.get("init")
        return found if isinstance(found, str) else None


def best(paths: SweepPaths, metric: str, mode: str, top: int) -> list[Candidate]:
    """The best trials that have a whole checkpoint with weights, best first, `top` at most.

    Raises:
        UserError: there is none.
    """
    found: list[Candidate] = []
    for line in summaries(paths, metric, mode):
        if line.value is None or not line.record.eligible or len(found) == top:
            continue
        checkpoint = newest_intact(paths.trial(line.record.id))
        if checkpoint is None or WEIGHTS not in checkpoint.manifest.files:
            log.warning("trial %s left out: no whole checkpoint with weights", line.record.id)
            continue
        found.append(_of(checkpoint, line.record.id, line.value))
    if not found:
        raise UserError(
            f"{paths.root}: no trial has both a finite '{metric}' and a whole checkpoint with "
            f"{WEIGHTS}; see what there is with: tune show {paths.name}"
        )
    return found


def named(paths: SweepPaths, metric: str, mode: str, trials: Sequence[str]) -> list[Candidate]:
    """These trials, in this order.

    Raises:
        UserError: one of them is not there, or not among those that `best` could give.
    """
    ids = paths.trial_ids()
    for unknown in (t for t in trials if t not in ids):
        raise UserError(f"{paths.name}: no trial '{unknown}'{suggest(unknown, ids)}")
    every = best(paths, metric, mode, len(ids))
    for useless in set(trials) - {c.label for c in every}:
        raise UserError(
            f"{paths.name}: trial {useless} has no finite '{metric}' or no whole checkpoint with "
            f"{WEIGHTS}; see: tune show {paths.name} {useless}"
        )
    by_id = {c.label: c for c in every}
    return [by_id[t] for t in dict.fromkeys(trials)]


def checkpoints(paths: SweepPaths, metric: str, trial_id: str, last: int) -> list[Candidate]:
    """The last whole checkpoints of one trial, oldest first (LAWA: Kaddour 2022, 2209.14981).

    Raises:
        UserError: there are fewer than two.
    """
    trial = paths.trial(trial_id)
    reported = {r.step: r.metrics.get(metric, math.nan) for r in read_reports(trial)}
    found: list[Candidate] = []
    for step in reversed(trial.checkpoint_steps()):
        folder = trial.checkpoint(step)
        try:
            manifest = verify(folder)
        except CheckpointError as e:
            log.warning("checkpoint passed over, %s", e)
            continue
        if WEIGHTS in manifest.files and len(found) < last:
            value = reported.get(step, math.nan)
            found.append(_of(Checkpoint(step, folder, manifest), f"{trial_id}@{step}", value))
    if len(found) < 2:
        count = "one" if found else "no"
        raise UserError(
            f"{paths.name}: trial {trial_id} has {count} whole checkpoint, and an average takes "
            "two; how many are kept is checkpoint.keep in the sweep file"
        )
    return found[::-1]


def clients(paths: SweepPaths, trial_id: str) -> list[Candidate]:
    """What each client of a federated trial had trained at its newest whole checkpoint.

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


def weights(picked: Sequence[Candidate], how: str, metric: str, mode: str) -> list[float]:
    """Weights of candidates: `metric`, `examples`, or numbers with commas, one for each.

    By metric, a model counts in proportion to its value, or to one over it where less is better.
    By examples, to the number on which it was trained (McMahan et al. 2017), which federated
    clients tell.

    Raises:
        UserError: the text is none of these, or a candidate lacks the number.
    """
    if how == "metric":
        values = [c.value for c in picked]
        if not all(0 < value < math.inf for value in values):
            raise UserError(f"--weights metric: needs a '{metric}' above 0 of all, got {values}")
        return values if mode == "max" else [1 / value for value in values]
    if how == "examples":
        counts = [c.lineage.get("examples") for c in picked]
        if not all(isinstance(count, int) for count in counts):
            raise UserError("--weights examples: only clients of a federated trial tell how many")
        return [float(str(count)) for count in counts]
    try:
        return [float(word) for word in how.split(",")]
    except ValueError:
        raise UserError(f"--weights: metric, examples or numbers like 0.5,0.5, not {how}") from None


def check_fit(picked: Sequence[Candidate], force: bool = False) -> None:
    """Refuse models whose weights have no common meaning.

    Args:
        picked: the candidates.
        force: let different or unknown initial weights pass; tensors must fit in any case.

    Raises:
        UserError: one line for each candidate whose initial weights are unknown or differ from the
            first one's, or whose tensors or adapters do.
    """
    first = picked[0]
    problems = [] if force else [_unknown(c) for c in picked if c.init is None]
    layout = read_layout(first.weights)
    for other in picked[1:]:
        reason = layout_mismatch(layout, read_layout(other.weights)) or _adapters(first, other)
        started = first.init is None or other.init in (first.init, None)
        if reason is None and not started and not force:
            reason = (
                "they started from different initial weights (share them with search.shared_init "
                "and the same sizes, or see what comes of it with --force)"
            )
        if reason is not None:
            both = f"{first.label} and {other.label}"
            problems.append(f"trials {both} cannot be averaged: {reason}")
    if problems:
        raise UserError(*problems)


def check_start(picked: Sequence[Candidate], digest: str | None, force: bool) -> None:
    """Refuse task vectors from weights with which the models did not begin.

    Args:
        picked: the models, which share their start (see `check_fit`) unless that was forced.
        digest: of the weights from which the task vectors would go; None where it is not known.
        force: let them pass.

    Raises:
        UserError: it is not theirs.
    """
    first = picked[0]
    if force or (digest is not None and first.init in (digest, None)):
        return
    if digest is None:
        raise UserError(
            "it cannot be known whether the models started from these weights, since the trainable "
            "has no digest(); --force takes them"
        )
    raise UserError(
        f"{first.label} did not start from these weights (another base, or code that has changed "
        "since), so it has no task vector from them; --force takes them all the same"
    )


def _unknown(candidate: Candidate) -> str:
    return (
        f"trial {candidate.label}: {candidate.folder / LINEAGE} names no initial weights, so it "
        "cannot be known whether it may be averaged; --force does it"
    )


def _adapters(first: Candidate, other: Candidate) -> str | None:
    """Why adapters of the same shapes are not the same kind of update."""
    mine, theirs = (_read(c.folder / ADAPTER) for c in (first, other))
    for key in _ADAPTER_KEYS:
        if mine.get(key) != theirs.get(key):
            return f"{ADAPTER} has {key}: {mine.get(key)} in one and {theirs.get(key)} in the other"
    return None


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_bytes())) if path.is_file() else {}


def _of(checkpoint: Checkpoint, label: str, value: float) -> Candidate:
    return Candidate(label, value, checkpoint.folder, checkpoint.manifest.files[WEIGHTS].sha256)
