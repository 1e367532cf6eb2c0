"""The trainable `distill`: `causal_lm` with a teacher. No torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, model_validator

from search_spaces.layout import Layout
from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.layouts.memory import layout_memory
from trainables.causal_lm.other_model import config_of_other
from trainables.causal_lm.trainable import CausalLM
from trainables.config import Problem, path_in
from trainables.parallel.footprint import RankMemory
from trainables.training.start_model import teacher_problems, tokens_of
from trainables.training.trainable import TaskTrainable

_OF_STUDENT = ("data", "sequence_length", "packing")


class DistillConfig(CausalLMConfig):
    """Hyperparameters of distillation."""

    task_class: ClassVar[str] = "trainables.distill.task:DistillTask"

    teacher: str | dict[str, Any] = Field(
        description="a folder with a model and its tokenizer (an export, or a checkpoint), or"
        " hyperparameters of causal_lm: then the first trial trains the teacher on the same data,"
        " and the others find it",
    )
    alpha: float = Field(
        0.5, ge=0, le=1, description="weight of the teacher in the loss; 0: the text alone"
    )
    temperature: float = Field(
        1.0, gt=0, description="of both distributions; above 1 improbable tokens count for more"
    )
    top_k: int = Field(
        32, gt=0, description="tokens of the teacher that are kept for each position"
    )
    vocab_size: int = Field(
        512,
        gt=0,
        le=1_000_000,
        description="of a student from scratch: that of its teacher, and no other",
    )

    @model_validator(mode="before")
    @classmethod
    def _vocabulary_of_teacher(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("model_name_or_path") is not None:
            return given
        size = _vocabulary(given.get("teacher"))
        if size is None:
            return given
        if given.get("vocab_size", size) != size:
            raise ValueError(
                f"vocab_size must be that of its teacher, {size}, got {given['vocab_size']};"
                " remove it"
            )
        return {**given, "vocab_size": size}

    @model_validator(mode="after")
    def _teacher_fits(self) -> DistillConfig:
        if self.tokenizer is not None:
            raise ValueError("tokenizer: the student has that of its teacher; remove it")
        if isinstance(self.teacher, str):
            return self
        if self.model_name_or_path is not None:
            raise ValueError(
                "teacher: a pretrained student needs the folder of a teacher with its tokenizer"
            )
        _ = self.teacher_config
        return self

    @property
    def teacher_config(self) -> CausalLMConfig | None:
        """Of a teacher that is trained on the student's data; None: it is in a folder."""
        if isinstance(self.teacher, str):
            return None
        same = {name: getattr(self, name) for name in _OF_STUDENT}
        return config_of_other("teacher", self.teacher, same)

    @property
    def tokenizer_from(self) -> str | None:
        """Folder or hub id whose tokenizer is taken: the teacher's, or its equal."""
        folder = self.teacher if isinstance(self.teacher, str) else None
        return self.model_name_or_path or folder

    def layout_memory(self, layout: Layout, *, on_gpu: bool) -> RankMemory | None:
        """Of the student: its teacher has left when the training begins."""
        return layout_memory(self, layout, on_gpu=on_gpu, top_k=self.top_k)

    def missing_files(self) -> list[Problem]:
        """Those of `causal_lm`, and what is wrong with the teacher's folder."""
        found = super().missing_files()
        if isinstance(self.teacher, str):
            name = self.model_name_or_path
            student = None if name is None else Path(name).expanduser()
            folder = Path(self.teacher).expanduser()
            problems = teacher_problems(folder, self.sequence_length, student)
            found += [(("teacher",), text) for text in problems]
        return found

    @classmethod
    def for_new_sweep(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Add the new defaults of the student and of its teacher."""
        found, teacher = super().for_new_sweep(config), config.get("teacher")
        if isinstance(teacher, dict):
            found = {**found, "teacher": CausalLMConfig.for_new_sweep(teacher)}
        return found

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Resolve the paths of the data, the student and the teacher."""
        fixed, teacher = super().resolve_paths(config, folder), config.get("teacher")
        if isinstance(teacher, str):
            fixed["teacher"] = path_in(folder, teacher) or teacher
        return fixed


def _vocabulary(teacher: Any) -> int | None:
    """Number of tokens of a teacher; None if it is not known here."""
    if isinstance(teacher, dict):
        size = teacher.get("vocab_size", CausalLMConfig.model_fields["vocab_size"].default)
        return size if isinstance(size, int) else None
    try:
        return len(tokens_of(Path(teacher).expanduser()))
    except (TypeError, ValueError):  # `missing_files` says it
        return None


class Distill(TaskTrainable[DistillConfig]):
    """A causal language model that learns the probabilities of a larger one, its teacher."""

    Config = DistillConfig
    metric_names = CausalLM.metric_names
    metric_depends_on = CausalLM.metric_depends_on
    elastic = True
    axes = ("dp_replicate", "dp_shard")
    runs_on_mps = True
