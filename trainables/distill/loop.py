"""Training of a student: the loop of `causal_lm`, with the teacher's outputs at hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from search_spaces.errors import UserError
from trainables.causal_lm.client import trained_once
from trainables.causal_lm.loop import train_task
from trainables.data.tokenizer import pretrained_encoder
from trainables.distill.config import DistillConfig
from trainables.distill.files import tokens_problem
from trainables.distill.outputs import compute_outputs
from trainables.distill.task import DistillTask
from trainables.worker import Worker


def train(config: DistillConfig, worker: Worker) -> None:
    """Train one trial on this rank."""
    _check_tokenizer(config)
    task = DistillTask.open(config, worker.cache)
    with worker.times.of("data"):
        teacher = _teacher(config, worker)
        outputs = compute_outputs(config, task.dataset, teacher, worker)
    train_task(replace(task, outputs=outputs), worker)


def _teacher(config: DistillConfig, worker: Worker) -> Path:
    """The folder of the teacher, which is trained on the student's data if it must be."""
    settings = config.teacher_config
    if settings is None:
        return Path(str(config.teacher)).expanduser()
    return trained_once(settings, worker.cache, worker.device, worker.heartbeat)


def _check_tokenizer(config: DistillConfig) -> None:
    """Refuse a pretrained student with a tokenizer of its own.

    Raises:
        UserError: the teacher has another.
    """
    if config.model_name_or_path is None or not isinstance(config.teacher, str):
        return
    names = (config.teacher, config.model_name_or_path)
    teacher, student = (pretrained_encoder(name).tokenizer.get_vocab() for name in names)
    if problem := tokens_problem(teacher, student):
        raise UserError(f"teacher {config.teacher}: {problem}")
