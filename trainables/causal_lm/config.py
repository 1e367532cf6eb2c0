"""Hyperparameters of `causal_lm`; no torch, so that `tune plan` can check them quickly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from search_spaces.layout import Layout
from trainables.causal_lm.layouts.memory import layout_memory
from trainables.causal_lm.layouts.rules import (
    expert_problem,
    layout_problem,
    saved_parameters,
    saved_sizes,
    sequence_problem,
    unknown_type,
    window_problem,
)
from trainables.causal_lm.lora import LoRAConfig
from trainables.causal_lm.quantized import missing_packages
from trainables.causal_lm.shape import ShapeConfig
from trainables.config import Problem, path_in
from trainables.data.hub import hub_problem
from trainables.data.text.config import DataConfig, paths_in
from trainables.parallel.footprint import RankMemory
from trainables.parallel.pipeline_rules import pipeline_field
from trainables.training.start_model import missing_of_model, positions_of


class CausalLMConfig(ShapeConfig):
    """Hyperparameters of a causal language model."""

    task_class: ClassVar[str] = "trainables.causal_lm.task:TextTask"
    """Full name of the function that opens the data of a configuration."""
    model_class: ClassVar[str] = "AutoModelForCausalLM"
    """The class of `transformers` that makes and loads the model."""
    has_dropout: ClassVar[bool] = True
    """Whether the training steps use the dropout that the model's configuration has."""

    model_name_or_path: str | None = Field(
        None,
        description="start from a pretrained model with its tokenizer: a folder, or a hub id",
    )
    lora: LoRAConfig | None = Field(
        None,
        description="with model_name_or_path: train a low-rank adapter (LoRA) of it; null: all"
        " weights",
    )
    sequence_length: int = Field(128, ge=2, description="tokens that one sequence predicts")
    packing: Literal["plain", "documents"] = Field(
        "plain",
        description="plain: a token sees all before it in its sequence; documents: only those of"
        " its own document, in which positions are counted from 0. plain is faster",
    )
    batch_size: int = Field(
        32, gt=0, description="sequences per optimizer step, of all workers together"
    )
    micro_batch_size: int | None = Field(
        None, gt=0, description="sequences that a worker computes at once; null: all of its share"
    )
    optimizer: Literal["adamw", "muon", "lion"] = Field(
        "adamw",
        description="adamw; muon (orthogonal updates of hidden matrices; AdamW trains embeddings,"
        " output, convolutions, gains and biases); or lion (signs of a momentum)",
    )
    learning_rate: float = Field(
        1e-2,
        gt=0,
        description="peak step size; muon takes that of AdamW, lion a third to a tenth of it",
    )
    adamw_learning_rate: float | None = Field(
        None,
        gt=0,
        description="muon: peak step size of what AdamW trains; null: learning_rate",
    )
    weight_decay: float = Field(0.1, ge=0, description="decay of matrices, per step and lr")
    warmup_fraction: float = Field(
        0.1,
        ge=0,
        le=1,
        description="fraction of max_steps with a linearly rising learning rate",
    )
    schedule: Literal["cosine", "wsd", "linear", "constant"] = Field(
        "cosine",
        description="learning rate after the warmup: cosine or linear decay to a tenth of the peak,"
        " wsd (constant, then linear decay), or constant",
    )
    decay_fraction: float = Field(
        0.2, ge=0, le=1, description="wsd: fraction of max_steps at the end in which it decays"
    )
    beta2: float = Field(
        0.99, gt=0, lt=1, description="decay of AdamW's squared gradients, or of lion's momentum"
    )
    grad_clip: float | None = Field(
        1.0, gt=0, description="largest L2 norm of the gradient; null: not clipped"
    )
    max_steps: int = Field(120, gt=0, description="optimizer steps of a whole trial")
    eval_every: int = Field(20, gt=0, description="steps between reports")
    eval_sequences: int = Field(
        128, gt=0, description="sequences evaluated at each report, spread over the split"
    )
    init_seed: int = Field(
        0, ge=0, description="of the initial weights; models of one init_seed can be averaged"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "float32",
        description="of the computation; weights and optimizer stay float32. auto: bfloat16 on a"
        " GPU that has it, else float32; each worker looks when an attempt starts. float16 scales"
        " the loss; it is for GPUs without bfloat16",
    )
    compile: Literal["auto", True, False] = Field(
        "auto",
        description="whether torch.compile compiles the training step, for up to a minute; later"
        " trials of the same shape on a lane take the code over. auto: on a GPU, from 10 million"
        " weights on, unless ranks of a layout share layers",
    )
    activation_checkpointing: bool = Field(
        False,
        description="compute the activations of each block again in the backward pass: about a"
        " third more computation, and a fraction of the memory",
    )
    data: DataConfig = Field(default_factory=lambda: DataConfig(), description="the text")

    @model_validator(mode="after")
    def _fits_together(self) -> CausalLMConfig:
        if self.compile is True and self.lora is not None and not self.lora.is_plain:
            raise ValueError(
                "compile: torch.compile does not take lora.use_dora, modules_to_save or quantize;"
                " remove it"
            )
        if self.adamw_learning_rate is not None and self.optimizer != "muon":
            raise ValueError("adamw_learning_rate has an effect only with optimizer: muon")
        self.check_parametrization(pretrained=self.is_pretrained)
        if (
            self.tokenizer is not None
            and self.vocab_size != type(self).model_fields["vocab_size"].default
        ):
            raise ValueError("vocab_size: no effect with tokenizer, which has its own; remove it")
        if self.model_name_or_path is not None:
            self.refuse_shape("model_name_or_path")
        elif self.lora is not None and not self.is_pretrained:
            raise ValueError("lora adapts a pretrained model; set model_name_or_path")
        elif not self.is_pretrained and self.hidden_size % (2 * self.heads):
            raise ValueError(
                f"hidden_size {self.hidden_size} must be a multiple of 2 x num_heads"
                f" (num_heads is {self.heads}): rotary positions turn pairs of units"
            )
        return self

    @property
    def is_pretrained(self) -> bool:
        """Whether the trials start from a model that has been trained."""
        return self.model_name_or_path is not None

    @property
    def tokenizer_from(self) -> str | None:
        """Folder or hub id whose tokenizer is taken; None: a BPE of the text."""
        return self.tokenizer or self.model_name_or_path

    @property
    def start(self) -> CausalLMConfig | None:
        """Hyperparameters of another model that it starts from; None: there is none."""
        return None

    def model_settings(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        """What the configuration of the model's class has of `meta`, that of the data, beside."""
        return {}

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of layers, heads and units that ranks may share; empty for a model of a hub."""
        if self.model_name_or_path is not None:
            return saved_sizes(self.model_name_or_path)
        return {
            "num_layers": self.num_layers,
            "num_heads": self.heads,
            "intermediate_size": self.mlp_size,
        }

    @property
    def num_parameters(self) -> int | None:
        """Weights of the model; None for one of a hub, or with the tokenizer of another."""
        if self.model_name_or_path is not None:
            return saved_parameters(self.model_name_or_path)
        return super().num_parameters

    @property
    def checkpoint_bytes(self) -> int | None:
        """Size of float32 weights and of the optimizer's averages of their gradients; for a
        pretrained model at most. None for adapters."""
        if (weights := self.num_parameters) is None or self.lora is not None:
            return None
        embedding = weights if self.is_pretrained else self.vocab_size * self.hidden_size
        averages = {"adamw": 2 * weights, "lion": weights, "muon": weights + embedding}
        return 4 * (weights + averages[self.optimizer])

    def missing_files(self) -> list[Problem]:
        """Globs without a match, what a pretrained model lacks, and `peft` for adapters."""
        found = [*self.data.path_problems(), *(missing_packages(self.lora) if self.lora else [])]
        for key, file in {"model_name_or_path": "config", "tokenizer": "tokenizer_config"}.items():
            if (name := getattr(self, key)) is None:
                continue
            if name.startswith(("/", ".", "~")) or Path(name).is_dir():
                own = name == self.tokenizer_from
                problem = missing_of_model(Path(name), model=key != "tokenizer", tokenizer=own)
            else:
                problem = hub_problem(name, f"{file}.json", "tokenizer.json", "tokenizer.model")
            found += [] if problem is None else [((key,), problem)]
        most, length = positions_of(self.model_name_or_path), self.sequence_length
        few = [] if most is None or most >= length else [f"the model has {most} positions"]
        return [*found, *((("sequence_length",), f"{text}, got {length}") for text in few)]

    def notes(self) -> list[str]:
        """What the metrics are of."""
        return self.data.notes()

    def validate_workers(self, workers: Sequence[int]) -> tuple[str, str] | None:
        """With experts, ranks count tokens together, so they have equally many micro-batches."""
        if self.experts is not None and self.micro_batch_size is not None:
            for count in workers:
                if self.batch_size % count:
                    return "micro_batch_size", (
                        f"with experts, workers must divide batch_size, {self.batch_size}, got "
                        f"{count}; remove micro_batch_size, or change one of them"
                    )
        return super().validate_workers(workers)

    def validate_layout(self, layout: Layout) -> tuple[str, str] | None:
        """Refuse what does not work on parts of a model, and sizes that ranks cannot share."""
        if layout.cp_method == "ring" and self.packing == "documents":
            return "packing", "documents does not work with cp_method ring; use gather"
        whole_only = {
            "optimizer": "muon" if self.optimizer == "muon" else None,
            "dtype": "float16" if self.dtype == "float16" else None,
            "compile": "True" if self.compile is True and not self.compiles_on(layout) else None,
            "lora": self._lora_in_parts(layout),
        }
        given = {name: value for name, value in whole_only.items() if value is not None}
        found = pipeline_field(layout, self.not_in_pipelines) or layout_problem(
            layout, given, self.sizes, self.batch_size, self.sequence_length
        )
        first = self.start or self
        sizes, model = (first.hidden_size, first.mlp_size), first.model_name_or_path
        found = found or expert_problem(layout, first.experts, *sizes, model)
        found = found or sequence_problem(layout, first.experts, model)
        found = found or window_problem(layout, model)
        return found or super().validate_layout(layout)

    def _lora_in_parts(self, layout: Layout) -> str | None:
        """What of the adapter needs a whole model on each rank."""
        if self.lora is None or (self.lora.is_plain and layout.tp == 1):
            return None
        return "" if self.lora.is_plain else "with use_dora, modules_to_save or quantize"

    def layout_memory(self, layout: Layout, *, on_gpu: bool) -> RankMemory | None:
        """Of a plain Llama whose weights are all trained; None for others."""
        return layout_memory(self, layout, on_gpu=on_gpu)

    def compiles_on(self, layout: Layout) -> bool:
        """Whether `torch.compile` takes the blocks of a rank: whole ones, without experts, whose
        balance is read from outside, and with plain adapters."""
        if self.lora is not None and not self.lora.is_plain:
            return False
        return not layout.shares_model or (layout.cuts_weights_only and self.experts is None)

    @property
    def not_in_pipelines(self) -> dict[str, object]:
        """Fields that exclude `pp` if they have a value."""
        return {
            "micro_batch_size": self.micro_batch_size,  # layout.microbatches is that
            "lora": "an adapter" if self.lora else None,  # one rank saves it, and has its layers
            "model_name_or_path": unknown_type(self.model_name_or_path),
        }

    @classmethod
    def for_new_sweep(cls, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration with wide heads, unless it says another width or number."""
        given = {"num_heads", "head_width", "model_name_or_path"} & config.keys()
        return config if given else {**config, "head_width": "auto"}

    @classmethod
    def for_probe(cls, config: dict[str, Any], steps: int) -> dict[str, Any]:
        """The configuration with a report after the steps only."""
        given = {name: value for name, value in config.items() if name != "epochs"}
        return {**given, "max_steps": steps + 1, "eval_every": steps + 1}

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """The configuration with relative paths made absolute: workers run in other folders."""
        fixed = dict(config)
        if isinstance(data := config.get("data"), dict):
            fixed["data"] = paths_in(data, folder)
        for key in ("model_name_or_path", "tokenizer"):
            name = config.get(key)
            if isinstance(name, str) and (path := path_in(folder, name)) and Path(path).is_dir():
                fixed[key] = path
        return fixed
