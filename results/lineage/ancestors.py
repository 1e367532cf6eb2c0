"""The models and data sets from which a model comes, read from the folders of their sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.averaging.soup import Soup, read_soup
from results.checkpoints.commit import CheckpointError, verify
from results.lineage.sources import Source, sources_in, title_of
from results.paths import SweepPaths
from results.records import environment
from results.records.pipeline import StageRecord, pipeline_of, read_stages
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, read_reports, read_trial
from search_spaces.errors import UserError
from search_spaces.files import parse_json, read_regular
from search_spaces.pipeline.loading import load_pipeline
from search_spaces.pipeline.stages import TrainStage

_NOT_SETTINGS = {"name", "kind", "after"}


@dataclass(frozen=True)
class DataSet:
    """A data set that a stage of a pipeline made.

    Attributes:
        title: pipeline and stage.
        folder: of the stage.
        key: of the stage; empty if it is not recorded.
        settings: keys of the stage.
        texts: split → number of texts.
        digests: file → SHA-256, of what the stage wrote, and of the files that it read.
    """

    title: str
    folder: Path
    key: str
    settings: Mapping[str, Any]
    texts: Mapping[str, int]
    digests: Mapping[str, str]


@dataclass(frozen=True)
class TrainedModel:
    """A model of a sweep.

    Attributes:
        title: the sweep's name, with its pipeline's.
        paths: of the sweep.
        key: of the stage; empty outside of a pipeline.
        trainable: of the sweep.
        name: of the trial or soup.
        trials: those whose weights are in it.
        sources: key of a trial's configuration → the model or data set to which its path leads.
        origin: `model_name_or_path`, if it leads to no sweep.
        chosen_by: metric of a later stage by which it was chosen; empty if it was by its own.
        average: how the trials were averaged; None for a single one.
        fingerprint: of the data of its first trial; empty if it is not recorded.
        step: of the checkpoint.
        weights: file → SHA-256 of the checkpoint's or soup's tensors.
        metrics: of the last report, or of the soup.
    """

    title: str
    paths: SweepPaths
    key: str
    trainable: str
    name: str
    trials: tuple[TrialRecord, ...]
    sources: Mapping[str, tuple[Source, ...]]
    origin: str
    chosen_by: str
    average: Soup | None
    fingerprint: str
    step: int
    weights: Mapping[str, str]
    metrics: Mapping[str, float]


Ancestor = DataSet | TrainedModel


def ancestors(paths: SweepPaths, name: str) -> tuple[Ancestor, ...]:
    """All from which a model comes, the oldest first and the model itself last.

    Models and data whose folders are gone are left out; `TrainedModel.origin` names their paths.

    Args:
        paths: of its sweep.
        name: of a trial or soup.

    Raises:
        UserError: the records of one of them are damaged.
    """
    found: dict[Source, Ancestor | None] = {}

    def visit(source: Source) -> None:
        if source in found:
            return
        found[source] = None  # a circle of links ends here
        made = _model(source) if source.model else data_set(source.folder)
        for parent in _parents(made):
            visit(parent)
        del found[source]
        found[source] = made

    visit(Source(paths.root, name))
    return tuple(one for one in found.values() if one is not None)


def _parents(made: Ancestor | None) -> Iterator[Source]:
    if isinstance(made, TrainedModel):
        for group in made.sources.values():
            yield from group


def _model(source: Source) -> TrainedModel | None:
    paths = SweepPaths(source.folder)
    soup, folder = None, paths.soup(source.model)
    if source.model not in paths.trial_ids():
        if not folder.is_dir():
            return None
        soup = read_soup(folder)
    ids = [m.partition("@")[0] for m in soup.members] if soup else [source.model]
    trials = tuple(read_trial(paths.trial(one)) for one in dict.fromkeys(ids))
    metrics = {}
    if soup:
        metrics = {f"{soup.metric} (test)": soup.scores[soup.method].mean}
    elif reports := read_reports(paths.trial(ids[0]), trials[0].end_step):
        metrics = dict(reports[-1].metrics)
    step, weights = _weights(folder if soup else paths.trial(ids[0]).newest_checkpoint())
    record, chosen_by = _stage(source.folder)
    found = _sources(trials)
    origin = trials[0].config.get("model_name_or_path") or ""
    return TrainedModel(
        title=title_of(source.folder),
        paths=paths,
        key=record.key if record else "",
        trainable=read_spec(paths).trainable,
        name=source.model,
        trials=trials,
        sources=found,
        origin="" if "model_name_or_path" in found else str(origin),
        chosen_by=chosen_by,
        average=soup,
        fingerprint=data_fingerprint(paths, trials[0]),
        step=step,
        weights=weights,
        metrics=metrics,
    )


def data_fingerprint(paths: SweepPaths, record: TrialRecord) -> str:
    """The fingerprint of a trial's training data; empty if its last attempt has none."""
    last = record.attempts[-1].number if record.attempts else 0
    found = environment.read(paths.trial(record.id), last)
    return (found.data or "") if found else ""


def _sources(trials: tuple[TrialRecord, ...]) -> dict[str, tuple[Source, ...]]:
    found: dict[str, dict[Source, None]] = {}
    for trial in trials:
        for key, _, source in sources_in(trial.config):
            found.setdefault(key, {})[source] = None
    return {key: tuple(group) for key, group in found.items()}


def _weights(folder: Path | None) -> tuple[int, dict[str, str]]:
    """Step and digests of a checkpoint, by its manifest; none if it is not whole."""
    try:
        manifest = verify(folder, hashes=False) if folder else None
    except CheckpointError:
        manifest = None
    if manifest is None:
        return 0, {}
    tensors = {n: e.sha256 for n, e in manifest.files.items() if n.endswith(".safetensors")}
    return manifest.step, tensors or {n: e.sha256 for n, e in manifest.files.items()}


def _stage(folder: Path) -> tuple[StageRecord | None, str]:
    """The record of a stage, and its `choose_by`; nothing for a sweep outside of a pipeline."""
    pipeline = pipeline_of(folder)
    if pipeline is None:
        return None, ""
    stage = load_pipeline(pipeline.spec).stages.get(folder.name)
    chosen_by = stage.choose_by if isinstance(stage, TrainStage) else None
    return read_stages(pipeline).stages.get(folder.name), chosen_by or ""


def data_set(folder: Path) -> DataSet | None:
    """The data that a stage of a pipeline put out; None if the folder is not of a stage.

    Raises:
        UserError: its records are damaged.
    """
    pipeline = pipeline_of(folder)
    if pipeline is None:
        return None
    stage, (record, _) = load_pipeline(pipeline.spec).stages.get(folder.name), _stage(folder)
    statistics = _statistics(folder)
    splits = statistics.get("splits", {})
    return DataSet(
        title=title_of(folder),
        folder=folder,
        key=record.key if record else "",
        settings=stage.model_dump(exclude=_NOT_SETTINGS, exclude_none=True) if stage else {},
        texts={name: split.get("texts", 0) for name, split in splits.items()},
        digests=statistics.get("sha256", {}),
    )


def _statistics(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = parse_json(read_regular(folder / "statistics.json"))
    except FileNotFoundError:  # the stage ran a command
        return {}
    except (OSError, ValueError) as e:
        raise UserError(f"{folder}: statistics.json is not readable ({e})") from e
    return found
