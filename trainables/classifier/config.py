"""The trainable `classifier`: a model of `causal_lm`, or another one, with an output per text."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveFloat, model_validator

from search_spaces.errors import UserError
from search_spaces.layout import Layout
from trainables.causal_lm.trainable import CausalLM
from trainables.classifier.rows import ClassifierDataConfig, read_labelled
from trainables.config import Problem
from trainables.data.bad_rows import BadRows
from trainables.data.corpora.generated import GENERATED
from trainables.sft.config import CHECKED_BYTES, RowsTrainedConfig
from trainables.sft.start import StartConfig
from trainables.training.trainable import TaskTrainable

_OF_LABELS = {"text", "text_pair", "label", "answer"}
_OF_PAIRS = {"question", "chosen", "rejected", "answer", "on_long"}


class ClassifierConfig(RowsTrainedConfig):
    """Hyperparameters of a classifier of texts."""

    task_class: ClassVar[str] = "trainables.classifier.task:ClassifierTask"
    model_class: ClassVar[str] = "AutoModelForSequenceClassification"
    start_key: ClassVar[str] = "pretrain"

    task: Literal["labels", "regression", "reward"] = Field(
        "labels",
        description="labels: cross-entropy of one label per text; regression: squared error of one"
        " number; reward: a score per answer that is higher for the preferred one (Bradley-Terry)",
    )
    class_weights: Literal["balanced"] | dict[str | int, PositiveFloat] | None = Field(
        None,
        description="labels: how much a label's texts count in the training; balanced: all labels"
        " count the same; or by label, 1 for others. Metrics are without them",
    )
    center_rewards_coefficient: float = Field(
        0.0, ge=0, description="reward: weight of the squared sum of both scores of a pair"
    )
    pretrain: dict[str, Any] | None = Field(
        None,
        description="in place of model_name_or_path: hyperparameters of causal_lm, with which the"
        " first trial trains the model that all trials start from",
    )
    sequence_length: int = Field(
        128,
        ge=2,
        description="tokens of a text; longer ones are cut at the right, longer answers bad data",
    )
    batch_size: int = Field(
        32, gt=0, description="texts or pairs per step, of all workers together"
    )
    micro_batch_size: int | None = Field(
        None, gt=0, description="texts or pairs that a worker computes at once; null: its share"
    )
    learning_rate: float = Field(3e-3, gt=0, description="peak step size; see causal_lm")
    eval_sequences: int = Field(
        2000, gt=0, description="texts or pairs evaluated at each report, spread over the split"
    )
    packing: Literal["none"] = Field("none", description="a sequence has one text")  # type: ignore[assignment]
    data: ClassifierDataConfig = Field(
        default_factory=lambda: ClassifierDataConfig(), description="the texts"
    )

    @model_validator(mode="after")
    def _of_task(self) -> ClassifierConfig:
        pairs, data = self.task == "reward", self.data
        if unused := sorted(data.model_fields_set & (_OF_LABELS if pairs else _OF_PAIRS)):
            raise ValueError(f"data.{unused[0]}: no effect with task: {self.task}; remove it")
        made = {"labels": ("docstrings",), "regression": ()}.get(self.task, tuple(GENERATED))
        if data.source not in (*made, "files"):
            known = ", ".join((*made, "files"))
            raise ValueError(
                f"data.source: with task: {self.task} one of {known}, got {data.source}"
            )
        if self.class_weights is not None and self.task != "labels":
            raise ValueError("class_weights has an effect only with task: labels")
        if self.center_rewards_coefficient and not pairs:
            raise ValueError("center_rewards_coefficient has an effect only with task: reward")
        if self.experts is not None:
            raise ValueError("experts: a classifier does not balance them; remove it")
        if self.parametrization != "standard":
            raise ValueError("parametrization: a classifier has no rule for its last layer")
        return self

    def validate_layout(self, layout: Layout) -> tuple[str, str] | None:
        """An adapter has a whole layer beside it, the last one."""
        if self.lora is not None and layout.shares_model:
            return "lora", "a classifier's adapter needs the whole model on each rank"
        return super().validate_layout(layout)

    def missing_files(self) -> list[Problem]:
        """Missing files and models, and the first row that is no data and not skipped."""
        if self.task == "reward":
            return super().missing_files()
        if (found := StartConfig.missing_files(self)) or not self.data.paths:
            return found
        stats = [(str(file), file.stat()) for file in self.data.files()]
        times = tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)
        problem = _first_problem(self.data.model_dump_json(), self.task == "regression", times)
        return [] if problem is None else [(("data",), problem)]

    def notes(self) -> list[str]:
        """What the rows of pairs are, and how many."""
        return super().notes() if self.task == "reward" else []

    def model_settings(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """The labels, and the token of the padding."""
        from trainables.data.tokenizer import load_pretrained, pad_token

        names, source = meta.get("labels"), self.tokenizer_from
        pad = meta["end"] if source is None else pad_token(load_pretrained(source))
        if names is None:
            return {"num_labels": 1, "problem_type": "regression", "pad_token_id": pad}
        labels = {name: number for number, name in enumerate(names)}
        return {
            "id2label": dict(enumerate(names)),
            "label2id": labels,
            "problem_type": "single_label_classification",
            "pad_token_id": pad,
        }


@lru_cache(maxsize=16)
def _first_problem(data: str, numbers: bool, files: tuple[tuple[str, int, int], ...]) -> str | None:
    """The first mistake in rows that is not skipped: a file is checked with many configurations.

    Args:
        data: `ClassifierDataConfig` as JSON.
        numbers: as of `read_labelled`.
        files: with their times and sizes; those beyond `CHECKED_BYTES` are not read.
    """
    settings = ClassifierDataConfig.model_validate_json(data)
    sizes = itertools.accumulate(size for _, _, size in files)
    checked = [Path(f) for (f, *_), size in zip(files, sizes, strict=True) if size <= CHECKED_BYTES]
    rows = read_labelled(checked or [Path(files[0][0])], settings, numbers=numbers)
    try:
        for _ in BadRows(settings.on_bad_data).leave_out(rows):
            pass
    except UserError as e:
        return str(e)
    return None


class Classifier(TaskTrainable[ClassifierConfig]):
    """A model that gives texts a label or a number, or answers a reward (a reward model)."""

    Config = ClassifierConfig
    metric_names = (
        "accuracy",
        "f1",
        "auc",
        "pearson",
        "spearman",
        "reward_margin",
        "chosen_reward",
        "rejected_reward",
        *(n for n in CausalLM.metric_names if n not in ("perplexity", "bits_per_byte")),
    )
    elastic = True
    axes = ("dp_replicate", "dp_shard")
    runs_on_mps = True
