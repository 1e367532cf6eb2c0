"""Build a soup: check and select candidates, average them, compare the result with the best one."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from results.averaging.method import Method, make_method
from results.averaging.soup.candidates import WEIGHTS, Candidate
from results.averaging.soup.scoring import SOUP_FILE, Evaluator, Soup, gain, score
from results.averaging.stream import MAX_MEMORY, Averaged, average
from results.checkpoints.commit import staged
from results.checkpoints.tensor_layout import layout_mismatch, read_layout
from results.paths import SweepPaths
from results.trial_paths import ADAPTER_CONFIG, DATA_KEY, LINEAGE
from search_spaces.errors import UserError

_NO_MEANING = "drop|jitter|aux_loss|initializer|max_position|_name|version|dtype|use_cache"
_VERSION = "transformers_version"
_SAME = {
    ADAPTER_CONFIG: "peft_type|r|lora_alpha|use_rslora|rank_pattern|alpha_pattern",
    "config.json": f"(?!.*({_NO_MEANING})).*",
}
"""File of a model → its keys that are of the meaning of the tensors: a regular expression."""


def check_models(candidates: Sequence[Candidate], force: bool = False) -> None:
    """Check that the models have the same tensors and started from the same weights.

    `force` allows different or unknown initial weights, and other data; tensors must fit.

    Raises:
        UserError: one line for each candidate whose initial weights are unknown or differ from the
            first one's, or whose tensors or adapters differ.
    """
    first = candidates[0]
    problems = [
        f"trial {c.label}: {c.folder / LINEAGE} names no initial weights, so it is unknown "
        "whether it may be averaged; --force averages it anyway"
        for c in candidates
        if c.init is None and not force
    ]
    layout = read_layout(first.weights)
    for other in candidates[1:]:
        reason = layout_mismatch(layout, read_layout(other.weights))
        reason = reason or _other_meaning(first, other, force)
        same_start = first.init is None or other.init in (first.init, None)
        if reason is None and not same_start and not force:
            reason = (
                "they started from different initial weights (share them with search.shared_init "
                "and the same sizes, or average them anyway with --force)"
            )
        if reason is not None:
            both = f"{first.label} and {other.label}"
            problems.append(f"trials {both} cannot be averaged: {reason}")
    if problems:
        raise UserError(*problems)


def check_base(candidates: Sequence[Candidate], digest: str | None, force: bool) -> None:
    """Check that the models started from the base of the task vectors.

    They have the same start (see `check_models`) unless forced. `digest` is that of the base; None
    where it is unknown. `force` allows another base.

    Raises:
        UserError: the models started from other weights, or that is unknown.
    """
    first = candidates[0]
    if force or (digest is not None and first.init in (digest, None)):
        return
    if digest is None:
        raise UserError(
            "it is unknown whether the models started from these weights, because the trainable "
            "has no digest(); --force uses them anyway"
        )
    raise UserError(
        f"{first.label} did not start from these weights (another base, or code that has changed "
        "since), so it has no task vector from them; --force uses them anyway"
    )


def _other_meaning(first: Candidate, other: Candidate, force: bool) -> str | None:
    """Why tensors of the same shapes are another kind of update, or used in another way."""
    data = {_settings(c, DATA_KEY).get("key") for c in (first, other)} - {None}  # None: not known
    if len(data) > 1 and not force:
        return (
            "they learned from other data, or by another tokenizer or sequence_length "
            "(average them anyway with --force)"
        )
    for name, keys in _SAME.items():
        mine, theirs = (_settings(c, name) for c in (first, other))
        every = mine.keys() | theirs.keys()  # a key that is left out has its default value
        if mine.get(_VERSION) != theirs.get(_VERSION):
            every = mine.keys() & theirs.keys()  # which another version may not have
        for key in sorted(key for key in every if re.fullmatch(keys, key)):
            if mine.get(key) != theirs.get(key):
                both = f"{mine.get(key)} in one and {theirs.get(key)} in the other"
                return f"{name} has {key}: {both}"
    return None


def _settings(model: Candidate, name: str) -> dict[str, Any]:
    """Content of a file of a model; empty if it is no JSON object of this project or another."""
    file = (model.folder if name == DATA_KEY else model.weights.parent) / name
    found = json.loads(file.read_bytes()) if file.is_file() else {}
    return found if isinstance(found, dict) else {}


_NOT_COPIED = (
    *("progress.*", "rng_*", "optimizer*", "scheduler*", "manifest.json", SOUP_FILE),
    *("model*.safetensors*", "adapter_*"),
)
"""Files of a checkpoint that are not part of the model, and its weights."""

BaseWeights = Callable[[Path], tuple[Path, str | None]]
"""Returns the file of the weights from which the models started, and its digest (None: unknown).

The argument is an empty folder where it may write them; the folder is deleted afterwards.
"""

Ranked = Sequence[tuple[float, Candidate]]
"""Candidates with their score on the selection split, best first."""


@dataclass(frozen=True)
class Recipe:
    """Settings of an average.

    Attributes:
        weights: of the candidates, if the method takes weights.
        base: returns the models' common start, for methods that need it.
        dtype: format of the result's floats; None keeps the format of each tensor.
        max_memory: bytes to hold at once.
        max_shard: bytes of one file of the result; None: one file.
        force: whether models of different or unknown starts may be averaged.
    """

    method: Method = field(default_factory=lambda: make_method("greedy"))
    weights: Sequence[float] | None = None
    base: BaseWeights | None = None
    dtype: str | None = None
    max_memory: int = MAX_MEMORY
    max_shard: int | None = None
    force: bool = False


def make_soup(
    paths: SweepPaths,
    name: str,
    candidates: Sequence[Candidate],
    evaluator: Evaluator,
    recipe: Recipe,
) -> Soup:
    """Average candidates, and compare the result with the best of them.

    Greedy selection starts with the candidate that is best on the selection split and adds the
    others in that order; a candidate stays if the average's score on that split is not worse.

    Args:
        paths: the soup is written to `results/soups/<name>`, and replaces an earlier one.
        candidates: the models, in order of time where the method needs it.
        evaluator: scores models. It evaluates each entry of `Soup.scores` on the test split once.

    Raises:
        UserError: the candidates cannot be averaged, or the score of one is not finite.
    """
    check_models(candidates, recipe.force)
    first = candidates[0]
    with (
        staged(paths.soup(name)) as folder,
        TemporaryDirectory(prefix=f".{name}.", dir=folder.parent) as scratch,
    ):
        folders = {first.folder: None, first.weights.parent: None}  # the second: of a merged one
        for file in (file for one in folders for file in one.iterdir()):
            if file.is_file() and not any(file.match(pattern) for pattern in _NOT_COPIED):
                shutil.copyfile(file, folder / file.name)
        soup = SoupBuilder(folder, Path(scratch), candidates, evaluator, recipe).build()
        (folder / SOUP_FILE).write_text(soup.model_dump_json(indent=1))
    return soup


@dataclass
class SoupBuilder:
    """Writes averages into a staging folder and scores them there.

    The folder holds the model files of a candidate; each average replaces the weights. The models'
    common start is written to `scratch`, an empty folder.
    """

    folder: Path
    scratch: Path
    candidates: Sequence[Candidate]
    evaluator: Evaluator
    recipe: Recipe

    def build(self) -> Soup:
        """Leave the soup's weights in the folder; return its record."""
        recipe, evaluator = self.recipe, self.evaluator
        method = recipe.method.name()
        shares = recipe.method.shares(len(self.candidates), recipe.weights)
        scored = [(evaluator.rank(c.folder, c.label), c) for c in self.candidates]
        ranked = sorted(scored, key=lambda pair: -pair[0])
        single = ranked[0][1]
        alone = evaluator.test(single.folder)
        scores = {"single": score(alone)}
        for other in (name for name in ("uniform", "greedy") if name != method):
            self._average(make_method(other), ranked)
            scores[other] = score(evaluator.test(self.folder))
        members, averaged = self._average(recipe.method, ranked)
        examples = evaluator.test(self.folder)
        scores[method] = score(examples)
        gained = gain(examples, alone, evaluator.sign)
        if recipe.max_shard is not None:
            whole, memory = self.folder / WEIGHTS, recipe.max_memory
            files = average([whole], whole, max_memory=memory, max_shard=recipe.max_shard).files
            if whole not in files:
                whole.unlink()
        return Soup(
            metric=evaluator.metric,
            method=method,
            options=recipe.method.model_dump(),
            members=tuple(c.label for c in members),
            single=single.label,
            candidates=tuple(
                {
                    "label": candidate.label,
                    "value": candidate.value,
                    "checkpoint": candidate.folder.name,
                    "sha256": candidate.sha256,
                    "share": None if recipe.method.selects else share,
                    "init": candidate.init,
                }
                for candidate, share in zip(self.candidates, shares, strict=True)
            ),
            scores=scores,
            gain=gained,
            promoted=gained.is_significant,
            dtype=recipe.dtype,
            rank_loss=averaged.rank_loss,
            force=recipe.force,
        )

    def _average(self, method: Method, ranked: Ranked) -> tuple[list[Candidate], Averaged]:
        """Select members by a method and write their average; returns the members too."""
        if not method.selects:
            return list(self.candidates), self._write(method, self.candidates)
        best, members = ranked[0][0], [ranked[0][1]]
        for _, candidate in ranked[1:]:
            self._write(method, [*members, candidate])
            with suppress(UserError):  # the score is not finite
                if (found := self.evaluator.rank(self.folder, "an average")) >= best:
                    best, members = found, [*members, candidate]
        return members, self._write(method, members)

    def _write(self, method: Method, members: Sequence[Candidate]) -> Averaged:
        recipe = self.recipe
        takes_weights = recipe.weights is not None and method == recipe.method
        averaged = average(
            [c.weights for c in members],
            self.folder / WEIGHTS,
            recipe.weights if takes_weights else None,
            method=method,
            base=self._base if method.needs_base else None,
            dtype=recipe.dtype,
            max_memory=recipe.max_memory,
            digests=[c.sha256 for c in members],
        )
        self.evaluator.recalibrate(self.folder)
        return averaged

    @cached_property
    def _base(self) -> Path | None:
        if self.recipe.base is None:
            return None
        base, digest = self.recipe.base(self.scratch)
        check_base(self.candidates, digest, self.recipe.force)
        return base
