"""Finds a trained model with its trainable, configuration and data, for commands that use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.analysis.selection import select_winner
from results.averaging.soup.scoring import Soup, read_soup
from results.checkpoints.commit import CheckpointError, newest_intact, verify
from results.models.lineage import data_fingerprint
from results.models.ref import ModelRef, checkpoint_ref, content_digest
from results.paths import SweepPaths
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, read_reports, read_trial
from results.sweep_folder.folder import find_trial, sweep_argument
from search_spaces.errors import UserError, suggest
from search_spaces.nested import flattened
from search_spaces.spec.sweep import SweepSpec
from trainables.base import Trainable
from trainables.config import TrainableConfig
from trainables.registry import resolve_for
from tuning.controller.trial_jobs import with_init_seed


def trainable_of(spec: SweepSpec, verb: str) -> Trainable[Any]:
    """The trainable of a sweep, if its models can be evaluated, or exported, here.

    Raises:
        UserError: only the training code can read its checkpoints, or they have no average.
    """
    trainable = resolve_for(spec)
    if verb == "average" and trainable.not_averaged:
        raise UserError(f"trainable {spec.trainable}: {trainable.not_averaged}")
    if trainable.can_evaluate or (verb != "average" and trainable.offers("exportable")):
        return trainable
    raise UserError(
        f"trainable {spec.trainable}: cannot {verb} the models of a {trainable.kind}, which only "
        f"it can score; {trainable.to_evaluate}"
    )


def config_of(spec: SweepSpec, trainable: Trainable[Any], record: TrialRecord) -> TrainableConfig:
    """A trial's configuration, checked against the trainable's current code.

    Raises:
        UserError: the configuration is no longer valid.
    """
    if problems := trainable.Config.problems(record.config):
        lines = (
            f"{record.id}: no longer fits {spec.trainable}: {'.'.join(p)}: {t}" for p, t in problems
        )
        raise UserError(*lines)
    return trainable.Config.model_validate(with_init_seed(spec, record.config, record.seed))


@dataclass(frozen=True)
class SelectedModel:
    """A model of a sweep with the code that reads it.

    Attributes:
        ref: the checkpoint or soup.
        paths, spec, trainable: of its sweep.
        config: of the trial, or of the soup's first member.
        params: those that varied in the sweep.
        notes: lines of its model card: the training data, and why it was chosen.
        where: the data on which its value was measured, in words.
        confirmed: whether it is better than the others on data that the search never used.
        unconfirmed_reason: why it is not confirmed, and how to confirm it.
    """

    ref: ModelRef
    paths: SweepPaths
    spec: SweepSpec
    trainable: Trainable[Any]
    config: TrainableConfig
    params: Mapping[str, object]
    notes: tuple[str, ...]
    where: str
    confirmed: bool
    unconfirmed_reason: str

    @property
    def name(self) -> str:
        """Of the trial or soup."""
        return self.ref.name

    @property
    def source(self) -> Path:
        """The folder of its weights."""
        return self.ref.folder


def select_model(
    paths: SweepPaths, trial: str | None, soup: str | None, verb: str
) -> SelectedModel:
    """The model that a command's `--trial` or `--soup` names; without them the winner.

    Raises:
        UserError: there is no such model, it has no complete checkpoint, or only the training code
            can read it.
    """
    if trial and soup:
        raise UserError(f"--trial and --soup exclude each other: one model to {verb}")
    spec = read_spec(paths)
    trainable = trainable_of(spec, verb)
    if soup:
        return _select_soup(paths, spec, trainable, soup)
    return _select_trial(paths, spec, trainable, trial)


def _select_trial(
    paths: SweepPaths, spec: SweepSpec, trainable: Trainable[Any], trial: str | None
) -> SelectedModel:
    clear, notes = False, tuple[str, ...]()
    if trial is None:
        winner = select_winner(paths, spec)
        record, clear = winner.line.record, winner.clear
        notes = (f"chosen because {winner.why}",)
    else:
        record = read_trial(find_trial(paths, trial))
    newest = newest_intact(paths.trial(record.id), trainable.models)
    if newest is None:
        raise UserError(f"{paths.name}: trial {record.id} has no intact checkpoint")
    reports = read_reports(paths.trial(record.id), newest.step)
    values = [r.metrics[spec.metric] for r in reports if spec.metric in r.metrics]
    return SelectedModel(
        checkpoint_ref(record, newest, {spec.metric: values[-1] if values else None}),
        paths,
        spec,
        trainable,
        config_of(spec, trainable, record),
        record.params,
        (*_data(paths, record), *notes),
        "on the selection split, by which the search chose",
        clear,
        f"not confirmed to be ahead of others; see tune best {sweep_argument(paths)} --confirm 3",
    )


def _select_soup(
    paths: SweepPaths, spec: SweepSpec, trainable: Trainable[Any], name: str
) -> SelectedModel:
    folder = paths.soup(name)
    names = [p.name for p in folder.parent.glob("[!.]*")]
    if name not in names:
        command = f"tune average {sweep_argument(paths)}"
        hint = suggest(name, names) if names else f"; make one with: {command}"
        raise UserError(f"{paths.name}: no soup '{name}'{hint}")
    soup = read_soup(folder)
    record = read_trial(paths.trial(soup.trial_id))
    method = f"average of weights: {soup.method}, {soup.options or 'no options'}"
    return SelectedModel(
        soup_ref(paths, folder, soup, spec.metric),
        paths,
        spec,
        trainable,
        config_of(spec, trainable, record),
        record.params,
        (*_data(paths, record), method),
        "on the test split, which the search did not see",
        soup.promoted,
        f"the average is not significantly better than {soup.single}",
    )


def soup_ref(paths: SweepPaths, folder: Path, soup: Soup, metric: str) -> ModelRef:
    """The model of a soup; `metric` is that of its sweep.

    Raises:
        UserError: its files are damaged.
    """
    try:
        digest = content_digest(verify(folder, hashes=False))
    except CheckpointError as e:
        raise UserError(str(e)) from e
    parameters = flattened(read_trial(paths.trial(soup.trial_id)).config)
    metrics = {metric: soup.scores[soup.method].mean}
    return ModelRef("soup", str(folder), folder.name, digest, parameters, metrics, soup.members)


def _data(paths: SweepPaths, record: TrialRecord) -> tuple[str, ...]:
    """A line with the fingerprint of a trial's training data, if it is recorded."""
    found = data_fingerprint(paths, record)
    return (f"data: fingerprint `{found}`",) if found else ()
