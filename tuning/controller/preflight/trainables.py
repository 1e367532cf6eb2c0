"""Checks of a sweep file against its trainable: workers, layout, configuration, settings.

Each returns mistakes with the path of the hyperparameter; an empty path is the trainable itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from search_spaces.layout import AXES, Layout
from search_spaces.spec.sweep import SweepSpec
from trainables.base import Trainable
from trainables.config import Problem, TrainableConfig
from trainables.parts import OwnChecks


def worker_problems(
    trainable: Trainable[Any], config: Mapping[str, Any], workers: Sequence[int]
) -> list[Problem]:
    """Reasons why a trial cannot have each of these numbers of workers.

    For an invalid configuration nothing is returned; `config_problems` has its mistakes.
    """
    if isinstance(trainable, OwnChecks):
        return trainable.worker_problems(config, workers)
    if len(workers) > 1 and not trainable.elastic:
        problem = "does not say that it can change its number of workers (elastic)"
        return [((), f"{trainable.name} {problem}")]
    checked = _checked(trainable, config)
    found = None if checked is None else checked.validate_workers(workers)
    return [] if found is None else [((found[0],) if found[0] else (), found[1])]


def layout_problems(
    trainable: Trainable[Any], config: Mapping[str, Any], layout: Layout
) -> list[Problem]:
    """Reasons why a trial cannot have this layout."""
    for axis in (*AXES, "ep"):
        if getattr(layout, axis) > 1 and axis not in trainable.axes:
            followed = ", ".join(trainable.axes)
            return [((), f"{trainable.name} follows {followed} only, got {axis}")]
    if layout.cuts_sequences and not trainable.cuts_sequences:
        return [((), f"{trainable.name} does not follow sequence_parallel")]
    checked = _checked(trainable, config)
    found = None if checked is None else checked.validate_layout(layout)
    if checked is None or found is None:
        return []
    field, problem = found
    if field:
        return [((field,), problem)]
    others = layout.neighbours(trainable.axes)
    fits = next((other for other in others if checked.validate_layout(other) is None), None)
    nearest = f"; nearest layout that fits: {fits.as_written()}" if fits else ""
    return [((), problem + nearest)]


def config_problems(
    trainable: Trainable[Any], config: Mapping[str, Any], *, files: bool
) -> list[Problem]:
    """All mistakes in a configuration, of which `Config` knows most.

    Args:
        files: whether trials run on this machine, which must have the files of their data.
    """
    if isinstance(trainable, OwnChecks):
        return trainable.config_problems(config, files=files)
    problems = trainable.Config.problems(config)
    if files and not problems:
        problems = trainable.Config.model_validate(dict(config)).missing_files()
    return problems


def setting_problems(
    trainable: Trainable[Any], spec: SweepSpec, configs: Sequence[Mapping[str, Any]]
) -> list[Problem]:
    """Settings of a sweep file without effect, and what it lacks, by their path in the file."""
    if isinstance(trainable, OwnChecks):
        return trainable.setting_problems(spec, configs)
    problem = f"has no effect: {trainable.name} reads its models itself; remove it"
    return [(("user_code",), problem)] if spec.user_code.named else []


def code_problems(trainable: Trainable[Any]) -> list[str]:
    """Mistakes that a look at the source of the training code shows, a line each."""
    return trainable.code_problems() if isinstance(trainable, OwnChecks) else []


def _checked(trainable: Trainable[Any], config: Mapping[str, Any]) -> TrainableConfig | None:
    try:
        return trainable.Config.model_validate(dict(config))
    except ValidationError:
        return None
