"""Evaluates models on tasks of lm-evaluation-harness: its own, and those of local files."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from results.export.quiet import quiet_loggers, quiet_transformers
from results.paths import SweepPaths
from results.records.evaluations import Evaluation, TaskScore, write_evaluation
from search_spaces.errors import UserError, suggest
from search_spaces.pipeline.stages import EvaluateStage
from tuning.evaluation.load_model import SelectedModel

_LOGGERS = ("lm_eval", "huggingface_hub", "datasets")
_SEED = 1234
"""The harness's own."""


@dataclass(frozen=True)
class TaskOptions:
    """The tasks, and how they are asked.

    Attributes:
        tasks: names of the harness, or paths of YAML files and folders, which have a slash or end
            with .yaml or .yml.
        limit: largest number of examples of a task; None is all.
        few_shot: examples in each prompt; None is what the task says.
        chat: whether prompts have the form of the tokenizer's chat template.
        batch_size: prompts that are evaluated at once.
        folder: of relative paths.
    """

    tasks: Sequence[str]
    limit: int | None = None
    few_shot: int | None = None
    chat: bool = False
    batch_size: int = 8
    folder: Path = Path()


def task_options(stage: EvaluateStage, folder: Path) -> TaskOptions:
    """The tasks of a pipeline's stage; `folder` is that of its relative paths."""
    return TaskOptions(stage.tasks, stage.limit, stage.few_shot, stage.chat, folder=folder)


def find_tasks(options: TaskOptions) -> tuple[Any, list[str]]:
    """The harness's `TaskManager`, and what its `load` takes for each task.

    Raises:
        UserError: the harness is not installed, or it has no such task.
    """
    if not options.tasks:
        raise UserError("--tasks: needs names of tasks, or paths of task files")
    if find_spec("lm_eval") is None:
        raise UserError("--tasks needs lm-eval; install it: pip install 'tune-platform[lm-eval]'")
    paths = {name: _path(options.folder, name) for name in options.tasks}
    folders = [path for path in paths.values() if path and path.is_dir()]
    with _quiet():
        from lm_eval.tasks import TaskManager

        manager = TaskManager(include_path=[*folders], include_defaults=None in paths.values())
        found = []
        for name, path in paths.items():
            if path is None and name not in manager.all_tasks:
                hint = suggest(name, manager.all_tasks)
                raise UserError(f"--tasks {name}: lm-eval has no such task{hint}")
            if path is None or path.is_file():
                found.append(str(path or name))
                continue
            inside = TaskManager(include_path=[path], include_defaults=False).all_subtasks
            if not inside:
                raise UserError(f"--tasks {name}: no task file is there")
            found += inside
    return manager, found


def _path(folder: Path, name: str) -> Path | None:
    return folder / name if "/" in name or name.endswith((".yaml", ".yml")) else None


def evaluate_selected(picked: SelectedModel, options: TaskOptions) -> tuple[Evaluation, Path]:
    """Evaluate a model of a sweep; returns the scores, and the file that has them.

    Raises:
        UserError: see `find_tasks`; data cannot be loaded, or the model is no language model.
    """
    found, cache = find_tasks(options), picked.paths.storage.cache
    with tempfile.TemporaryDirectory() as scratch:
        try:
            picked.trainable.export_hf(picked.config, picked.source, Path(scratch), cache)
        except NotImplementedError as e:
            raise UserError(f"trainable {picked.spec.trainable}: {e}") from e
        name = f"trainable {picked.spec.trainable}"
        made = _evaluate(Path(scratch), name, found, options)
    return _record(picked.paths, picked.name, picked.ref.digest, picked.source, made, options)


def evaluate_export(
    folder: Path, sweep: SweepPaths, model: str, options: TaskOptions
) -> tuple[Evaluation, Path]:
    """Evaluate an export of a sweep's model; see `evaluate_selected`.

    Args:
        folder: of the export, in the format of `transformers`.
        sweep, model: from which it comes.
    """
    made = _evaluate(folder, str(folder), find_tasks(options), options)
    return _record(sweep, model, "", folder, made, options)


def _record(
    paths: SweepPaths,
    model: str,
    digest: str,
    folder: Path,
    scores: tuple[dict[str, TaskScore], int],
    options: TaskOptions,
) -> tuple[Evaluation, Path]:
    from importlib.metadata import version

    made = Evaluation(
        model=model,
        digest=digest,
        path=str(folder),
        created=time.time(),
        harness=version("lm-eval"),
        limit=options.limit,
        chat=options.chat,
        cut=scores[1],
        tasks=scores[0],
    )
    return made, write_evaluation(paths, made)


def _evaluate(
    folder: Path, name: str, tasks: tuple[Any, list[str]], options: TaskOptions
) -> tuple[dict[str, TaskScore], int]:
    """The scores of a folder of `transformers`, and the number of prompts that were cut."""
    if not (folder / "tokenizer.json").is_file():
        raise UserError(f"{name}: answers no tasks, because it has no tokenizer; see tune predict")
    import torch

    with _quiet(), _counted_cuts() as cuts:
        from lm_eval import evaluate
        from lm_eval.models.huggingface import HFLM

        manager, names = tasks
        loaded = [one for task in names for one in _load(manager, task, options)]
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model: Any = HFLM(str(folder), device=device, batch_size=options.batch_size)
        if options.chat and not model.tokenizer.chat_template:
            raise UserError(f"--chat: the tokenizer of {name} has no chat template; leave it out")
        torch.manual_seed(_SEED)
        try:
            found = evaluate(  # simple_evaluate calls programs that print
                lm=model,
                task_dict=manager.load(loaded),
                limit=options.limit,
                apply_chat_template=options.chat,
                fewshot_as_multiturn=options.chat,
                log_samples=False,
            )
        except ValueError as e:  # code that is unsafe, images, a task that is there twice
            raise UserError(f"--tasks: {_line(e)}") from e
        except AssertionError as e:  # of an answer that is as long as the context
            if "tokens to generate" not in str(e):
                raise
            hint = "set max_gen_toks of the task's generation_kwargs"
            raise UserError(f"--tasks: {_line(e)} {hint}") from e
    return _scores(found), len(cuts)


def _load(manager: Any, task: str, options: TaskOptions) -> list[Any]:
    """The tasks of a name, with their data; a tag has several.

    Raises:
        UserError: the data cannot be loaded, or the number of examples in a prompt is fixed.
    """
    try:
        loaded = manager.load([task])
    except Exception as e:  # of the harness, `datasets`, the network, or code of the task
        hint = ""
        if isinstance(e, ConnectionError):
            hint = "; its data comes from a hub: load it on a machine with a network first"
        raise UserError(f"--tasks {task}: cannot be loaded ({_line(e)}){hint}") from e
    for name, one in loaded["tasks"].items():
        own = one.get_config("num_fewshot")
        if own == 0 and options.few_shot:
            raise UserError(f"--few-shot {options.few_shot}: {name} takes no examples in prompts")
        one.set_config(
            key="num_fewshot", value=own or 0 if options.few_shot is None else options.few_shot
        )
        one.set_fewshot_seed(seed=_SEED)
    inner = {name for group in loaded["groups"].values() for name in group.child_names}
    every = {**loaded["tasks"], **loaded["groups"]}
    return [one for name, one in every.items() if name not in inner]


def _scores(found: Mapping[str, Any]) -> dict[str, TaskScore]:
    """The harness's results; `acc,none` is acc, and `exact_match,strict` exact_match/strict."""
    scores = {}
    for task, values in found["results"].items():
        metrics, errors = dict[str, float](), dict[str, float]()
        for key, value in values.items():
            metric, _, kind = key.partition(",")
            if not kind or not isinstance(value, int | float):  # of "N/A" there is no error
                continue
            name = metric.removesuffix("_stderr") + (f"/{kind}" if kind != "none" else "")
            (errors if metric.endswith("_stderr") else metrics)[name] = float(value)
        scores[task] = TaskScore(
            version=str(found["versions"].get(task)),
            few_shot=found["n-shot"].get(task),
            examples=found["n-samples"].get(task, {}).get("effective", 0),
            metrics=metrics,
            errors=errors,
        )
    return scores


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Without messages below ERROR of the harness and what loads its data."""
    from datasets import disable_progress_bars

    disable_progress_bars()
    with quiet_loggers(*_LOGGERS), quiet_transformers():
        yield


@contextmanager
def _counted_cuts() -> Iterator[list[str]]:
    """The messages of the harness about prompts that are too long, which it cuts at the left."""
    found: list[str] = []

    def count(record: logging.LogRecord) -> bool:
        if "runcat" in record.getMessage():
            found.append(record.getMessage())
        return record.levelno >= logging.ERROR

    logger = logging.getLogger("lm_eval.models.huggingface")
    logger.setLevel(logging.WARNING)
    logger.addFilter(count)
    try:
        yield found
    finally:
        logger.removeFilter(count)
        logger.setLevel(logging.NOTSET)
