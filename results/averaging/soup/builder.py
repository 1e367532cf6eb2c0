"""Making a soup: which candidates go in, the folder that comes out, and what it is worth."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from results.averaging import Averaged, Method, average, make_method
from results.averaging.soup.candidates import WEIGHTS, Candidate, check_fit, check_start
from results.averaging.soup.scoring import Evaluator, Gain, Score, gain, score
from results.averaging.stream import MAX_MEMORY
from results.checkpoints.commit import commit, create_staging
from results.paths import SweepPaths
from search_spaces.errors import UserError

RECIPE = "soup.json"

_NOT_MODEL = ("progress.*", "rng_*", "optimizer*", "scheduler*", "manifest.json", RECIPE)
"""Files of a checkpoint that only the continuation of its own trial can use."""

Start = Callable[[Path], tuple[Path, str | None]]
"""Gives the weights' file from which the models started, and its digest (None: not known). The
folder is for what has to be written for that; it is gone afterwards."""


@dataclass(frozen=True)
class Recipe:
    """How the weights become one.

    Attributes:
        method: of averaging.
        weights: of the candidates, where the method takes them.
        start: gives the models' common start, for methods that need it.
        dtype: of the result's floats; None keeps each tensor's own.
        max_memory: bytes to hold at once.
        max_shard: bytes of one file of the result; None: one file.
        force: whether models of different or unknown starts may be averaged.
    """

    method: Method = field(default_factory=lambda: make_method("greedy"))
    weights: Sequence[float] | None = None
    start: Start | None = None
    dtype: str | None = None
    max_memory: int = MAX_MEMORY
    max_shard: int | None = None
    force: bool = False


class Soup(BaseModel):
    """What was made: the content of `soup.json`.

    Attributes:
        metric: by which it was judged.
        method: by its name.
        options: of the method.
        members: labels of the candidates in it.
        candidates: of each one that was considered: label, value, checkpoint, SHA-256, share, and
            the digest of the weights from which it started.
        scores: on the test split: `single` (the candidate that is best on the selection split),
            `uniform`, `greedy`, and the method.
        gain: of the soup over that single candidate.
        promoted: whether it is better by more than the evaluation's own error.
        rank_loss: part of the LoRA updates' norm that the rank could not hold.
        force: whether models of different or unknown starts were let pass.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    metric: str = ""
    method: str
    options: dict[str, Any]
    members: tuple[str, ...]
    single: str
    candidates: tuple[dict[str, Any], ...]
    scores: dict[str, Score]
    gain: Gain
    promoted: bool
    dtype: str | None = None
    rank_loss: float | None = None
    force: bool = False

    @property
    def trial_id(self) -> str:
        """The trial whose configuration the model has."""
        return self.members[0].partition("@")[0]


def make_soup(
    paths: SweepPaths, name: str, picked: Sequence[Candidate], judge: Evaluator, recipe: Recipe
) -> Soup:
    """Average candidates, and judge the result beside the best of them.

    Greedy selection starts with the candidate that is best on the selection split and goes down
    from there; an addition stays when the average's score on that split is not worse than before.

    Args:
        paths: the soup is written to `results/soups/<name>`, replacing an earlier one.
        name: of the folder.
        picked: the candidates, in order of time where the method asks for it.
        judge: see there. The test split is looked at once for each line of the result.
        recipe: see there.

    Raises:
        UserError: the candidates cannot be averaged, or a single one's score is not finite.
    """
    check_fit(picked, recipe.force)
    with _kettle(paths, name, picked) as (kettle, final):
        kitchen = _Kitchen(kettle, picked, judge, recipe)
        ranked = sorted(
            ((judge.rank(c.folder, c.label), c) for c in picked), key=lambda pair: -pair[0]
        )
        best = ranked[0][1]
        alone = judge.test(best.folder)
        scores = {"single": score(alone)}
        for other in {"uniform", "greedy"} - {recipe.method.name()}:
            kitchen.cook(make_method(other), ranked)
            scores[other] = score(judge.test(kettle))
        members, made = kitchen.cook(recipe.method, ranked)
        judged = judge.test(kettle)
        scores[recipe.method.name()] = score(judged)
        better = gain(judged, alone, judge.sign)
        soup = Soup(
            metric=judge.metric,
            method=recipe.method.name(),
            options=recipe.method.model_dump(),
            members=tuple(c.label for c in members),
            single=best.label,
            candidates=tuple(kitchen.described()),
            scores=scores,
            gain=better,
            promoted=better.certain,
            dtype=recipe.dtype,
            rank_loss=made.rank_loss,
            force=recipe.force,
        )
        kitchen.shard()
        (kettle / RECIPE).write_text(soup.model_dump_json(indent=1))
        commit(kettle, final, step=0)
        return soup


def read_soup(folder: Path) -> Soup:
    """What an earlier call made.

    Raises:
        UserError: the folder holds no soup.
    """
    try:
        return Soup.model_validate_json((folder / RECIPE).read_bytes())
    except (OSError, ValidationError) as e:
        raise UserError(f"{folder}: no soup ({RECIPE} is missing or damaged)") from e


@dataclass
class _Kitchen:
    kettle: Path
    picked: Sequence[Candidate]
    judge: Evaluator
    recipe: Recipe
    _begun: Path | None = None

    def cook(
        self, method: Method, ranked: Sequence[tuple[float, Candidate]]
    ) -> tuple[list[Candidate], Averaged]:
        """Leave in the kettle what a method makes of the candidates; says of which.

        Args:
            method: of averaging.
            ranked: candidates with their score on the selection split, best first.
        """
        if not method.selects:
            return list(self.picked), self._mix(method, self.picked)
        best, members = ranked[0][0], [ranked[0][1]]
        for _, candidate in ranked[1:]:
            self._mix(method, [*members, candidate])
            found = _finite(self.judge, self.kettle)
            if found is not None and found >= best:
                best, members = found, [*members, candidate]
        return members, self._mix(method, members)

    def _mix(self, method: Method, members: Sequence[Candidate]) -> Averaged:
        recipe = self.recipe
        weighs = recipe.weights is not None and method == recipe.method
        made = average(
            [c.weights for c in members],
            self.kettle / WEIGHTS,
            recipe.weights if weighs else None,
            method=method,
            base=self._base() if method.needs_base else None,
            dtype=recipe.dtype,
            max_memory=recipe.max_memory,
            digests=[c.sha256 for c in members],
        )
        self.judge.recalibrate(self.kettle)
        return made

    def _base(self) -> Path | None:
        """The models' common start, made where the kettle is; gone with it."""
        if self.recipe.start is None:
            return None
        if self._begun is None:
            folder = self.kettle.with_name(f"{self.kettle.name}.start")
            create_staging(folder)
            self._begun, digest = self.recipe.start(folder)
            check_start(self.picked, digest, self.recipe.force)
        return self._begun

    def shard(self) -> None:
        """Cut the model in the kettle into files, if asked."""
        whole, most = self.kettle / WEIGHTS, self.recipe.max_shard
        if most is not None:
            made = average([whole], whole, max_memory=self.recipe.max_memory, max_shard=most)
            if whole not in made.files:
                whole.unlink()

    def described(self) -> Iterator[dict[str, Any]]:
        """Of each candidate, what is written down."""
        shares = self.recipe.method.shares(len(self.picked), self.recipe.weights)
        for candidate, share in zip(self.picked, shares, strict=True):
            yield {
                "label": candidate.label,
                "value": candidate.value,
                "checkpoint": candidate.folder.name,
                "sha256": candidate.sha256,
                "share": None if self.recipe.method.selects else share,
                "init": candidate.init,
            }


def _finite(judge: Evaluator, kettle: Path) -> float | None:
    try:
        return judge.rank(kettle, "an average")
    except UserError:
        return None


@contextmanager
def _kettle(
    paths: SweepPaths, name: str, picked: Sequence[Candidate]
) -> Iterator[tuple[Path, Path]]:
    """A hidden folder with the first candidate's model files, gone afterwards; its final name."""
    final = paths.soup(name)
    folder = final.with_name(f".{name}.{os.getpid()}")
    create_staging(folder)
    try:
        for file in picked[0].folder.iterdir():
            weights = file.match("model*.safetensors*")
            if file.is_file() and not weights and not any(file.match(p) for p in _NOT_MODEL):
                shutil.copyfile(file, folder / file.name)
        yield folder, final
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(folder.with_name(f"{folder.name}.start"), ignore_errors=True)
