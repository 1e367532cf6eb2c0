"""`results/evaluations/*.json`: scores of a sweep's models on tasks of a benchmark."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from results.paths import SweepPaths
from results.storage.atomic import write_atomic
from search_spaces.files import read_regular

log = logging.getLogger(__name__)


class TaskScore(BaseModel):
    """The scores of one task.

    Attributes:
        version: of the task's definition.
        few_shot: examples in each prompt.
        examples: that were evaluated; 0 for a group, whose tasks have theirs.
        metrics: name → value.
        errors: name → standard error, of the metrics that have one.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    version: str
    few_shot: int | None
    examples: int
    metrics: dict[str, float]
    errors: dict[str, float]


class Evaluation(BaseModel):
    """A model's scores.

    Attributes:
        model: the trial or soup.
        digest: of the model's files; empty of the copy that an export is.
        path: the folder of the weights.
        created: Unix seconds.
        harness: version of lm-evaluation-harness.
        limit: largest number of examples of a task; None is all.
        chat: whether the prompts had the form of the chat template.
        cut: prompts, or batches of them, that were too long and were cut at the left.
        tasks: name → scores.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    model: str
    digest: str
    path: str
    created: float
    harness: str
    limit: int | None
    chat: bool
    cut: int
    tasks: dict[str, TaskScore]

    @property
    def metrics(self) -> dict[str, float]:
        """`eval/TASK/METRIC` → value."""
        return {
            f"eval/{task}/{name}": value
            for task, score in self.tasks.items()
            for name, value in score.metrics.items()
        }

    @property
    def lines(self) -> dict[str, str]:
        """Task with its settings → the scores, as lines of a model card."""
        found = {}
        for task, score in self.tasks.items():
            examples = f"{score.examples} examples, " if score.examples else ""
            chat = ", chat template" if self.chat else ""
            about = f"`{task}` ({examples}{score.few_shot or 0}-shot{chat})"
            values = (
                f"{name} {value:.4g}"
                + (f" ± {score.errors[name]:.2g}" if name in score.errors else "")
                for name, value in score.metrics.items()
            )
            found[about] = f"{about}: {', '.join(values)}"
        return found


def write_evaluation(paths: SweepPaths, made: Evaluation) -> Path:
    """Write an evaluation into the folder of its sweep; returns the file."""
    paths.evaluations.mkdir(parents=True, exist_ok=True)
    file = paths.evaluations / f"{made.model}-{made.created * 1000:.0f}.json"
    write_atomic(file, made.model_dump_json(indent=1).encode())
    return file


def read_evaluations(paths: SweepPaths) -> Iterator[Evaluation]:
    """The evaluations of a sweep, the oldest first; a damaged one is skipped with a warning."""
    found = []
    for file in paths.evaluations.glob("[!.]*.json"):
        try:
            found.append(Evaluation.model_validate_json(read_regular(file)))
        except (OSError, ValidationError) as e:
            log.warning("evaluation skipped: %s: %s", file, str(e).splitlines()[0])
    yield from sorted(found, key=lambda one: one.created)
