"""The models and data sets from which a model comes, read from the folders of their sweeps."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results.averaging.soup.scoring import Soup, read_soup
from results.checkpoints.commit import CheckpointError, Manifest, verify
from results.models.origins import Origin, origins_in, title_of
from results.models.stages import read_stages
from results.paths import SweepPaths
from results.records import environment
from results.records.pipeline import pipeline_of
from results.records.spec_file import read_spec
from results.records.trial import TrialRecord, read_reports, read_trial
from search_spaces.errors import UserError
from search_spaces.files import parse_json, read_regular
from search_spaces.pipeline.loading import load_pipeline
from search_spaces.pipeline.stages import Stage, TrainStage

_NOT_SETTINGS = {"name", "kind", "after"}


@dataclass(frozen=True)
class DataSet:
    """A data set that a stage of a pipeline made.

    Attributes:
        title: pipeline and stage.
        key: of the stage; empty if it is not recorded.
        settings: keys of the stage.
        texts: split → number of texts.
        digests: file → SHA-256, of what the stage wrote, and of the files that it read.
    """

    title: str
    key: str
    settings: Mapping[str, Any]
    texts: Mapping[str, int]
    digests: Mapping[str, str]


@dataclass(frozen=True)
class TrainedModel:
    """A model of a sweep.

    Attributes:
        title: the sweep's name, with its pipeline's.
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
    key: str
    trainable: str
    name: str
    trials: tuple[TrialRecord, ...]
    sources: Mapping[str, tuple[Origin, ...]]
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
    found: dict[Origin, Ancestor | None] = {}

    def visit(origin: Origin) -> None:
        if origin in found:
            return
        found[origin] = None  # a circle of links ends here
        made = _model(origin) if origin.model else data_set(origin.folder)
        if isinstance(made, TrainedModel):
            for parent in (one for group in made.sources.values() for one in group):
                visit(parent)
        del found[origin]
        found[origin] = made

    visit(Origin(paths.root, name))
    return tuple(one for one in found.values() if one is not None)


def _model(origin: Origin) -> TrainedModel | None:
    paths = SweepPaths(origin.folder)
    soup, folder = None, paths.soup(origin.model)
    if origin.model not in paths.trial_ids():
        if not folder.is_dir():
            return None
        soup = read_soup(folder)
    ids = [m.partition("@")[0] for m in soup.members] if soup else [origin.model]
    trials = tuple(read_trial(paths.trial(one)) for one in dict.fromkeys(ids))
    metrics = {}
    if soup:
        metrics = {f"{soup.metric} (test)": soup.scores[soup.method].mean}
    elif reports := read_reports(paths.trial(ids[0]), trials[0].end_step):
        metrics = dict(reports[-1].metrics)
    whole, step, digests = folder if soup else paths.trial(ids[0]).newest_checkpoint(), 0, {}
    with suppress(CheckpointError):  # it is not whole
        manifest = verify(whole, hashes=False) if whole else Manifest(step=0, files={})
        step, digests = manifest.step, {n: e.sha256 for n, e in manifest.files.items()}
    key, stage = _stage(origin.folder)
    sources: dict[str, dict[Origin, None]] = {}
    for name, _, source in (one for trial in trials for one in origins_in(trial.config)):
        sources.setdefault(name, {})[source] = None
    first = str(trials[0].config.get("model_name_or_path") or "")
    return TrainedModel(
        title=title_of(origin.folder),
        key=key,
        trainable=read_spec(paths).trainable,
        name=origin.model,
        trials=trials,
        sources={name: tuple(group) for name, group in sources.items()},
        origin="" if "model_name_or_path" in sources else first,
        chosen_by=(isinstance(stage, TrainStage) and stage.choose_by) or "",
        average=soup,
        fingerprint=data_fingerprint(paths, trials[0]),
        step=step,
        weights={n: d for n, d in digests.items() if n.endswith(".safetensors")} or digests,
        metrics=metrics,
    )


def data_fingerprint(paths: SweepPaths, record: TrialRecord) -> str:
    """The fingerprint of a trial's training data; empty if its last attempt has none."""
    last = record.attempts[-1].number if record.attempts else 0
    found = environment.read(paths.trial(record.id), last)
    return (found.data or "") if found else ""


def _stage(folder: Path) -> tuple[str, Stage | None]:
    """The key and the definition of a stage; nothing for a sweep outside of a pipeline."""
    if (pipeline := pipeline_of(folder)) is None:
        return "", None
    record = read_stages(pipeline).stages.get(folder.name)
    return record.key if record else "", load_pipeline(pipeline.spec).stages.get(folder.name)


def data_set(folder: Path) -> DataSet | None:
    """The data that a stage of a pipeline put out; None if the folder is not of a stage.

    Raises:
        UserError: its records are damaged.
    """
    if pipeline_of(folder) is None:
        return None
    key, stage = _stage(folder)
    try:
        statistics: dict[str, Any] = parse_json(read_regular(folder / "statistics.json"))
    except FileNotFoundError:  # the stage ran a command
        statistics = {}
    except (OSError, ValueError) as e:
        raise UserError(f"{folder}: statistics.json is not readable ({e})") from e
    return DataSet(
        title=title_of(folder),
        key=key,
        settings=stage.model_dump(exclude=_NOT_SETTINGS, exclude_none=True) if stage else {},
        texts={name: split.get("texts", 0) for name, split in statistics.get("splits", {}).items()},
        digests=statistics.get("sha256", {}),
    )
