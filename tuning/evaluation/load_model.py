"""From a trial's record to its trainable, configuration and data: for commands that use models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.export import ModelCard
    from results.paths import SweepPaths
    from results.records.trial import TrialRecord
    from search_spaces.spec.sweep import SweepSpec
    from trainables.base import Trainable
    from trainables.config import TrainableConfig


def record_of(paths: SweepPaths, trial_id: str) -> TrialRecord:
    """The record of a trial."""
    from results.records.trial import read_trial

    return read_trial(paths.trial(trial_id))


def trainable_of(spec: SweepSpec, verb: str) -> Trainable[Any]:
    """The trainable of a sweep, if its models can be read here.

    Raises:
        UserError: only the training code itself can read them.
    """
    from search_spaces.errors import UserError
    from trainables.registry import resolve

    trainable = resolve(spec.trainable)
    if not trainable.can_evaluate:
        raise UserError(
            f"trainable {spec.trainable}: cannot {verb} the models of a {trainable.kind}, whose "
            "checkpoints only it can read; tune best names the newest one"
        )
    return trainable


def config_of(spec: SweepSpec, trainable: Trainable[Any], record: TrialRecord) -> TrainableConfig:
    """A trial's configuration, for code that may have changed since it was trained.

    Raises:
        UserError: it no longer fits.
    """
    from search_spaces.errors import UserError
    from tuning.controller.trial_jobs import started

    if problems := trainable.Config.problems(record.config):
        told = (
            f"{record.id}: no longer fits {spec.trainable}: {'.'.join(p)}: {t}" for p, t in problems
        )
        raise UserError(*told)
    return trainable.Config.model_validate(started(spec, record.config, record.seed))


def cache_of(paths: SweepPaths) -> Path:
    """Folder of the prepared data of the sweep's storage."""
    from results.paths import Storage

    return Storage(paths.root.parent).cache


_Found = tuple["Path", str, "ModelCard", bool, str]


@dataclass(frozen=True)
class SelectedModel:
    """One model of a sweep: a trial's or an average's.

    Attributes:
        name: of the trial or the soup.
        source: the folder of its weights.
        config: of the trial, or of the soup's first member.
        card: what its model card says.
        gated: whether it proved better than its rivals on data that the search never saw.
        why_not_gated: and if not, what would show it.
    """

    paths: SweepPaths
    spec: SweepSpec
    trainable: Trainable[Any]
    name: str
    source: Path
    config: TrainableConfig
    card: ModelCard
    confirmed: bool
    unconfirmed_reason: str


def select_model(
    sweep: str, trial: str | None, soup: str | None, storage: str | None, verb: str
) -> SelectedModel:
    """The model that a command's `--trial` or `--soup` names; the winner for neither.

    Raises:
        UserError: there is none, it has no whole checkpoint, or only a Ray Train loop can read it.
    """
    from results.records.spec_file import read_spec
    from search_spaces.errors import UserError
    from tuning.controller.sweep_dir.folder import find_sweep

    if trial and soup:
        raise UserError(f"--trial and --soup exclude each other: one model to {verb}")
    paths = find_sweep(sweep, storage)
    spec = read_spec(paths)
    trainable = trainable_of(spec, verb)
    found = _from_soup(paths, spec, soup) if soup else _from_trial(paths, spec, trial)
    config = config_of(spec, trainable, record_of(paths, found[2].parents[0].partition("@")[0]))
    return SelectedModel(paths, spec, trainable, found[1], found[0], config, *found[2:])


def _from_trial(paths: SweepPaths, spec: SweepSpec, trial: str | None) -> _Found:
    from results.analysis.leaderboard import read_leaderboard
    from results.analysis.selection import select_winner
    from results.checkpoints.commit import newest_intact
    from results.export import ModelCard
    from search_spaces.errors import UserError
    from tuning.controller.sweep_dir.folder import find_trial

    said: tuple[str, ...]
    if trial is None:
        choice = select_winner(paths, spec)
        entry, clear, said = choice.line, choice.clear, (f"chosen because {choice.why}",)
    else:
        find_trial(paths, trial)
        clear, said = False, ()
        entries = read_leaderboard(paths, spec.metric, spec.mode)
        entry = next(e for e in entries if e.record.id == trial)
    found = newest_intact(paths.trial(entry.record.id))
    if found is None:
        raise UserError(f"{paths.name}: trial {entry.record.id} has no whole checkpoint")
    card = ModelCard(
        spec.name,
        spec.metric,
        entry.value,
        (entry.record.id,),
        entry.record.params,
        (*_data(paths, entry.record), *said),
        "on the selection split, by which the search chose",
    )
    why = f"not confirmed to be ahead of others; see tune best {paths.name} --confirm 3"
    return found.folder, entry.record.id, card, clear, why


def _data(paths: SweepPaths, record: TrialRecord) -> tuple[str, ...]:
    """What a trial was trained on, as far as its last attempt wrote it down."""
    from results.records import environment

    last = record.attempts[-1].number if record.attempts else 0
    found = environment.read(paths.trial(record.id), last)
    return (f"data: fingerprint `{found.data}`",) if found and found.data else ()


def _from_soup(paths: SweepPaths, spec: SweepSpec, soup: str) -> _Found:
    from results.averaging.soup import read_soup
    from results.export import ModelCard
    from search_spaces.errors import UserError, suggest
    from tuning.controller.sweep_dir.folder import sweep_argument

    folder = paths.soup(soup)
    names = [p.name for p in folder.parent.glob("[!.]*")]
    if soup not in names:
        hint = (
            suggest(soup, names)
            if names
            else f"; make one with: tune average {sweep_argument(paths)}"
        )
        raise UserError(f"{paths.name}: no soup '{soup}'{hint}")
    made = read_soup(folder)
    first = record_of(paths, made.trial_id)
    value = made.scores[made.method].mean
    card = ModelCard(
        spec.name,
        spec.metric,
        value,
        made.members,
        first.params,
        (
            *_data(paths, first),
            f"average of weights: {made.method}, {made.options or 'no options'}",
        ),
        "on the test split, which the search did not see",
    )
    return folder, soup, card, made.promoted, f"the average is not surely better than {made.single}"
