"""The keys of each kind of stage."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from search_spaces.spec.base import Seconds, Section
from search_spaces.spec.tracking import MonitoringSpec

NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
_SOURCES = {
    "stories": ("stories",),
    "sums": ("arithmetic",),
    "digits": ("arithmetic",),
    "seed": ("stories", "arithmetic"),
}
"""Keys of a data stage → the sources with which they have an effect."""


class Stage(Section):
    """What the stages of all kinds have."""

    name: str = Field(pattern=NAME, max_length=40, description="Name of the stage.")
    kind: str = Field(description="What the stage does.")
    after: list[str] | None = Field(
        None,
        alias="from",
        description="Stages that come before; default: those that the stage names, or else the one "
        "above it.",
    )

    @property
    def models(self) -> tuple[str, ...]:
        """The keys whose values name a model of another stage."""
        return ()

    @property
    def texts(self) -> Any:
        """The values in which `{stage}` stands for another stage's folder."""
        return None


class TrainedTokenizer(Section):
    """A byte-level BPE that is trained on the train split."""

    vocab_size: int = Field(ge=257, le=1_000_000, description="Tokens: 256 bytes and more.")


class DataStage(Stage):
    """Makes a data set: cleaned text, split in three files."""

    kind: Literal["data"]
    source: Literal["stories", "arithmetic", "files"] = Field(
        description="stories: short stories, and instructions about them, made by a small grammar; "
        "arithmetic: sums, as text and as questions; files: `paths`."
    )
    stories: int = Field(
        4000, ge=100, le=10_000_000, description="Number of stories to make (stories)."
    )
    sums: int = Field(
        6000, ge=100, le=10_000_000, description="Number of different sums to make (sums)."
    )
    digits: int = Field(2, ge=1, le=9, description="Digits of the numbers of a sum, at most.")
    seed: int = Field(0, ge=0, description="Seed of the stories or sums.")
    paths: list[str] = Field(
        default_factory=list,
        description="Globs of .jsonl, .parquet and text files, also of a data set of the hub: "
        "hf://datasets/OWNER/NAME@REVISION/**/*.parquet. A file whose name or folder is train, "
        "val, valid, validation, dev, selection or test (also train-00000-of-00004) keeps "
        "that split.",
    )
    text_field: str = Field("text", description="JSONL key or Parquet column of the text.")
    min_chars: int = Field(1, ge=1, description="Shorter texts are left out (characters).")
    max_chars: int | None = Field(None, ge=1, description="Longer texts are left out (characters).")
    near_duplicates: float | None = Field(
        0.8,
        gt=0,
        le=1,
        description="A text that shares at least this part of its runs of five words with an "
        "earlier one is left out, estimated by MinHash; null: only exact duplicates.",
    )
    keep_if: str | None = Field(
        None,
        pattern=r"^.+\.py:[A-Za-z_]\w*$",
        description="script.py:function that returns whether a text is kept, by its language for "
        "example.",
    )
    tokenizer: TrainedTokenizer | str | None = Field(
        None,
        description="{vocab_size: 4000}: a byte-level BPE, trained on the train split; or the "
        "folder or hub id of one. It is written to tokenizer/.",
    )
    pack: int | None = Field(
        None,
        ge=2,
        description="With tokenizer: the sequence_length of the models that read text/*.jsonl, "
        "whose token files are written to the cache of the pipeline.",
    )

    workers: int | None = Field(
        None, ge=1, description="Processes that read files; null: one per core."
    )

    @field_validator("pack")
    @classmethod
    def _of_tokenizer(cls, pack: int | None, info: Any) -> int | None:
        if pack is not None and info.data.get("tokenizer") is None:
            raise ValueError("needs a tokenizer, for example tokenizer: {vocab_size: 4000}")
        return pack

    @field_validator("paths")
    @classmethod
    def _of_files(cls, paths: list[str], info: Any) -> list[str]:
        if "source" in info.data and bool(paths) != (info.data["source"] == "files"):
            raise ValueError("has an effect with source: files, which needs it")
        return paths

    @field_validator("stories", "sums", "digits", "seed")
    @classmethod
    def _of_its_source(cls, value: int, info: Any) -> int:
        sources = _SOURCES[info.field_name]
        if info.data.get("source", sources[0]) not in sources:
            raise ValueError(f"has an effect only with source: {' or '.join(sources)}")
        return value


class TrainStage(Stage):
    """Runs a sweep."""

    kind: Literal["train"]
    sweep: dict[str, Any] = Field(
        description="The keys of a sweep file, without name and storage; or the path of one."
    )
    overrides: dict[str, Any] = Field(
        default_factory=dict,
        alias="set",
        description="Dotted keys of the sweep with other values: {budget.trials: 4}.",
    )
    init: str | None = Field(
        None,
        min_length=1,
        description="The model to begin with: pretrain.winner, pretrain.top(3), pretrain.soup, a "
        "folder or a hub id. top(3) tries each of the three.",
    )
    choose_by: str | None = Field(
        None,
        pattern=r"^((min|max) )?[A-Za-z0-9_-]+\.\S+$",
        description="Metric of a later stage that begins with top(k) of this one, by which the "
        "winner is chosen: sft.eval_loss, or max sft.exact_match.",
    )
    tie: dict[str, str] = Field(
        default_factory=dict,
        description="Parameters that take the value of an earlier stage's model: {weight_decay: "
        "pretrain.weight_decay}.",
    )
    directory: str | None = Field(
        None, description="Folder of the sweep's relative paths; default: the pipeline's."
    )

    @property
    def models(self) -> tuple[str, ...]:
        """`init`."""
        return ("init",)

    @property
    def texts(self) -> Any:
        """Its `fixed` parameters."""
        return self.sweep.get("fixed")


class AverageStage(Stage):
    """Averages the weights of a sweep's best models."""

    kind: Literal["average"]
    of: str = Field(description="The train stage.")
    top: int = Field(5, ge=2, description="Number of best trials to average.")
    method: str = Field("greedy", description="The method of tune average.")
    options: dict[str, Any] = Field(default_factory=dict, description="Options of the method.")


class ConfirmStage(Stage):
    """Trains a sweep's best trials again under new seeds; the winner is then the best of these."""

    kind: Literal["confirm"]
    of: str = Field(description="The train stage.")
    top: int = Field(3, ge=1, description="Number of best trials to train again.")
    seeds: int = Field(3, ge=1, description="New seeds for each.")


class ExportStage(Stage):
    """Exports a model."""

    kind: Literal["export"]
    model: str = Field(description="pretrain.winner or pretrain.soup.")
    to: list[str] = Field(
        min_length=1,
        description="Formats of tune export. mlflow registers the model under the pipeline's name.",
    )
    quant: Literal["q8_0", "q4_k_m", "int8"] | None = Field(
        None, description="Weights of fewer bits: q8_0 or q4_k_m for gguf, int8 for onnx."
    )
    verify: bool = Field(True, description="Run the copies, and compare their outputs.")

    @property
    def models(self) -> tuple[str, ...]:
        """`model`."""
        return ("model",)


class EvaluateStage(Stage):
    """Evaluates a model on the test split, and on tasks of lm-evaluation-harness."""

    kind: Literal["evaluate"]
    model: str = Field(description="pretrain.winner or pretrain.soup.")
    tasks: list[str] = Field(
        default_factory=list,
        description="Tasks of tune evaluate: names, task files and folders of them (with a slash).",
    )
    limit: int | None = Field(None, ge=1, description="Largest number of examples of a task.")
    few_shot: int | None = Field(
        None, ge=0, description="Examples in each prompt; null: what the task says."
    )
    chat: bool = Field(False, description="Ask in the form of the tokenizer's chat template.")

    @field_validator("limit", "few_shot", "chat")
    @classmethod
    def _of_tasks(cls, value: int | None, info: Any) -> int | None:
        if value and not info.data.get("tasks"):
            raise ValueError("has an effect with tasks")
        return value

    @property
    def models(self) -> tuple[str, ...]:
        """`model`."""
        return ("model",)


class CommandStage(Stage):
    """Runs a program in the stage's folder."""

    kind: Literal["command"]
    command: list[str] = Field(
        min_length=1,
        description="The program with its arguments; {stage} is that stage's folder, {output} this "
        "one's.",
    )

    @property
    def texts(self) -> Any:
        """The arguments."""
        return self.command


STAGES: dict[str, type[Stage]] = {
    "data": DataStage,
    "train": TrainStage,
    "average": AverageStage,
    "confirm": ConfirmStage,
    "export": ExportStage,
    "evaluate": EvaluateStage,
    "command": CommandStage,
}
"""The kinds of stages."""


class WholeBudget(Section):
    """Limits of all train stages together. A stage gets what is left, if that is less."""

    trials: int | None = Field(None, ge=1, description="Trials of all stages (trials).")
    time: Seconds | None = Field(
        None, description="Wall-clock time of all stages (seconds, or '90s', '2h')."
    )
    cpu_hours: float | None = Field(None, gt=0, description="CPU-hours of all stages.")
    gpu_hours: float | None = Field(None, gt=0, description="GPU-hours of all stages.")
    cost: float | None = Field(
        None, gt=0, description="Cost of all stages; each has `prices` of one currency."
    )


class PipelineHead(Section):
    """The keys of a pipeline file besides its stages."""

    name: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        max_length=64,
        description="The pipeline's name and the name of its folder.",
    )
    description: str | None = Field(None, description="Purpose of the pipeline, in your words.")
    budget: WholeBudget = Field(default_factory=WholeBudget)
    monitoring: MonitoringSpec = Field(
        default_factory=MonitoringSpec,
        description="Metrics of the train stages without a section `monitoring`.",
    )
    stages: list[Any] = Field(min_length=1, description="The stages.")
    directory: str | None = Field(
        None, description="Folder of relative paths; default: that of the file."
    )
