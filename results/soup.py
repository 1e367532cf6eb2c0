"""Averages of a sweep's best trials: which of them to take, and the folder that is made of them.

Uniform and greedy soups as in Wortsman et al. 2022, "Model soups" (arXiv 2203.05482). An average
can be much worse than its members, so each is judged beside the best single trial.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from results.averaging import average
from results.checkpoint import commit, newest_whole, open_staging
from results.leaderboard import summaries
from results.paths import SweepPaths
from results.tensors import difference, read_layout
from search_spaces.errors import UserError

log = logging.getLogger(__name__)

WEIGHTS, LINEAGE, RECIPE = "model.safetensors", "lineage.json", "soup.json"

_NOT_MODEL = ("progress.*", "rng_*", "optimizer*", "scheduler*", "manifest.json", RECIPE)
"""Files of a checkpoint that only the continuation of its own trial can use."""

Evaluate = Callable[[Path], float]
"""Judges a folder with `model.safetensors` on data that the search has not seen.

The same folder comes again with other weights.
"""


@dataclass(frozen=True)
class Candidate:
    """A trial that may go into a soup.

    Attributes:
        trial_id: of the trial.
        value: the metric by which the search ranks it.
        folder: its newest whole checkpoint.
        sha256: of the weights.
    """

    trial_id: str
    value: float
    folder: Path
    sha256: str

    @property
    def weights(self) -> Path:
        """Its `model.safetensors`."""
        return self.folder / WEIGHTS


@dataclass(frozen=True)
class Soup:
    """What was made.

    Attributes:
        folder: a committed folder: weights, the model's other files, `soup.json`.
        method: `greedy` or `uniform`.
        members: ids of the trials in it, in the order in which they were added.
        scores: by the held-out evaluation, empty without one: `single` (the first candidate),
            `uniform` (all candidates), and `greedy`, where that was asked for.
    """

    folder: Path
    method: str
    members: tuple[str, ...]
    scores: dict[str, float]


def candidates(paths: SweepPaths, metric: str, mode: str, top: int) -> list[Candidate]:
    """The best trials that have a whole checkpoint with weights, best first, `top` at most.

    Raises:
        UserError: there is none.
    """
    found: list[Candidate] = []
    for line in summaries(paths, metric, mode):
        if line.value is None or not line.record.eligible or len(found) == top:
            continue
        checkpoint = newest_whole(paths.trial(line.record.id))
        if checkpoint is None or WEIGHTS not in checkpoint.manifest.files:
            log.warning("trial %s left out: no whole checkpoint with weights", line.record.id)
            continue
        sha256 = checkpoint.manifest.files[WEIGHTS].sha256
        found.append(Candidate(line.record.id, line.value, checkpoint.folder, sha256))
    if not found:
        raise UserError(
            f"{paths.root}: no trial has both a finite '{metric}' and a whole checkpoint with "
            f"{WEIGHTS}; see what there is with: tune show {paths.name}"
        )
    return found


def check_lineage(picked: Sequence[Candidate]) -> None:
    """Refuse models whose weights have no common meaning.

    Raises:
        UserError: one line for each trial whose initial weights are unknown or differ from the
            first one's, or whose tensors do.
    """
    first = picked[0]
    layout, init = read_layout(first.weights), _init(first)
    problems = [
        f"trial {c.trial_id}: {c.folder / LINEAGE} names no initial weights, so it cannot "
        f"be known whether it may be averaged"
        for c in picked
        if _init(c) is None
    ]
    for other in picked[1:] if init is not None else ():
        reason = difference(layout, read_layout(other.weights))
        if reason is None and _init(other) not in (init, None):
            reason = (
                "they started from different initial weights (share them: fix the model's size "
                "and its init seed in the sweep file)"
            )
        if reason is not None:
            problems.append(
                f"trials {first.trial_id} and {other.trial_id} cannot be averaged: {reason}"
            )
    if problems:
        raise UserError(*problems)


def uniform(
    paths: SweepPaths, picked: Sequence[Candidate], evaluate: Evaluate | None = None
) -> Soup:
    """Average all candidates.

    Args:
        paths: the soup is written to `results/soups/uniform-<number of candidates>`.
        picked: best first, see `candidates`.
        evaluate: scores the best single trial and the soup; None leaves it unjudged.
    """
    check_lineage(picked)
    with _kettle(paths, f"uniform-{len(picked)}", picked) as (kettle, final):
        average([c.weights for c in picked], kettle / WEIGHTS)
        scores = {}
        if evaluate is not None:
            scores = {"single": _score(evaluate, picked[0]), "uniform": evaluate(kettle)}
        return _serve(kettle, final, "uniform", picked, picked, scores)


def greedy(paths: SweepPaths, picked: Sequence[Candidate], evaluate: Evaluate, mode: str) -> Soup:
    """Add one candidate after another, and keep each addition that does no harm.

    Starts with the best trial by the search's metric; an addition stays when the average's
    held-out score is not worse than before it. So the soup is never worse than that trial alone,
    on the data of `evaluate`.

    Args:
        paths: the soup is written to `results/soups/greedy-<number of candidates>`.
        picked: best first, see `candidates`.
        evaluate: called once per candidate, and once for the uniform average.
        mode: of the score, `min` or `max`.

    Raises:
        UserError: the candidates cannot be averaged, or the best one's score is not finite.
    """
    check_lineage(picked)
    sign = 1.0 if mode == "max" else -1.0
    with _kettle(paths, f"greedy-{len(picked)}", picked) as (kettle, final):
        best = single = _score(evaluate, picked[0])
        members = [picked[0]]
        for candidate in picked[1:]:
            average([c.weights for c in [*members, candidate]], kettle / WEIGHTS)
            score = evaluate(kettle)
            if sign * score >= sign * best:  # False for a NaN
                best, members = score, [*members, candidate]
        average([c.weights for c in picked], kettle / WEIGHTS)
        scores = {"single": single, "uniform": evaluate(kettle), "greedy": best}
        average([c.weights for c in members], kettle / WEIGHTS)
        return _serve(kettle, final, "greedy", picked, members, scores)


def read_recipe(folder: Path) -> Soup:
    """What an earlier call made.

    Raises:
        UserError: the folder holds no soup.
    """
    try:
        raw = json.loads((folder / RECIPE).read_bytes())
        return Soup(folder, raw["method"], tuple(raw["members"]), raw["scores"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise UserError(f"{folder}: no soup ({RECIPE} is missing or damaged)") from e


def _init(candidate: Candidate) -> str | None:
    try:
        found = json.loads((candidate.folder / LINEAGE).read_text())["init"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _score(evaluate: Evaluate, candidate: Candidate) -> float:
    score = evaluate(candidate.folder)
    if not math.isfinite(score):
        raise UserError(
            f"trial {candidate.trial_id}: its held-out score is {score}, so nothing can be "
            f"compared with it"
        )
    return score


@contextmanager
def _kettle(
    paths: SweepPaths, name: str, picked: Sequence[Candidate]
) -> Iterator[tuple[Path, Path]]:
    """A hidden folder with the first member's model files, gone afterwards; and its final name."""
    final = paths.soup(name)
    folder = final.with_name(f".{name}.{os.getpid()}")
    open_staging(folder)
    try:
        for file in picked[0].folder.iterdir():
            if file.is_file() and not any(file.match(p) for p in (*_NOT_MODEL, WEIGHTS)):
                shutil.copyfile(file, folder / file.name)
        yield folder, final
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _serve(
    kettle: Path,
    final: Path,
    method: str,
    picked: Sequence[Candidate],
    members: Sequence[Candidate],
    scores: dict[str, float],
) -> Soup:
    ids = tuple(c.trial_id for c in members)
    recipe = {
        "method": method,
        "members": ids,
        "scores": scores,
        "candidates": [
            {"trial": c.trial_id, "value": c.value, "checkpoint": c.folder.name, "sha256": c.sha256}
            for c in picked
        ],
    }
    (kettle / RECIPE).write_text(json.dumps(recipe, indent=1))
    commit(kettle, final, step=0)
    return Soup(final, method, ids, scores)
