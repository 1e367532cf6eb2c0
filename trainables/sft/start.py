"""The start of a fine-tuning: a model in a folder, or one that the first trial trains; no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from pydantic import model_validator

from trainables.causal_lm.config import CausalLMConfig
from trainables.causal_lm.other_model import config_of_other
from trainables.config import Problem


class StartConfig(CausalLMConfig):
    """Hyperparameters of a fine-tuning; a subclass has a field named `start_key`."""

    start_key: ClassVar[str]
    """Name of the field with the hyperparameters of the first model."""
    start_kind: ClassVar[type[CausalLMConfig]] = CausalLMConfig
    """Their class."""

    @model_validator(mode="after")
    def _one_start(self) -> StartConfig:
        if self.start is not None:
            if self.model_name_or_path is not None:
                raise ValueError(
                    f"{self.start_key} and model_name_or_path exclude each other; remove one"
                )
            self.refuse_shape(self.start_key)
        return self

    @property
    def is_pretrained(self) -> bool:
        """Whether the trials start from a model that has been trained, also by the first trial."""
        return super().is_pretrained or getattr(self, self.start_key) is not None

    @property
    def start(self) -> CausalLMConfig | None:
        """Hyperparameters of the model that is trained for all trials to start from."""
        given = getattr(self, self.start_key)
        if given is None:
            return None
        return config_of_other(self.start_key, given, self.same_as_start(), self.start_kind)

    def same_as_start(self) -> dict[str, Any]:
        """Hyperparameters of the first model that are the trial's own."""
        return {"sequence_length": self.sequence_length, "init_seed": self.init_seed}

    @property
    def sizes(self) -> dict[str, int]:
        """Numbers of layers, heads and units that ranks may share; empty for a model of a hub."""
        return super().sizes if self.start is None else self.start.sizes

    @property
    def num_parameters(self) -> int | None:
        """Weights of the model; None for one of a hub."""
        return super().num_parameters if self.start is None else self.start.num_parameters

    @property
    def checkpoint_bytes(self) -> int | None:
        """Size of float32 weights and of the optimizer's averages; None for adapters."""
        if self.start is None:
            return super().checkpoint_bytes
        if self.lora is not None:
            return None
        return self.start.model_copy(update={"optimizer": self.optimizer}).checkpoint_bytes

    def missing_files(self) -> list[Problem]:
        """Those of `causal_lm` and of the first model."""
        found = super().missing_files()
        if self.start is not None:
            found += [((self.start_key, *p), text) for p, text in self.start.missing_files()]
        return found

    @classmethod
    def for_new_sweep(cls, config: dict[str, Any]) -> dict[str, Any]:
        """Add the new defaults of the model, or of the one that it starts from."""
        first = config.get(cls.start_key)
        if not isinstance(first, dict):
            return super().for_new_sweep(config)
        return {**config, cls.start_key: cls.start_kind.for_new_sweep(first)}

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Resolve the paths of the data, the model and the data of the first model."""
        fixed, first = super().resolve_paths(config, folder), config.get(cls.start_key)
        if isinstance(first, dict):
            fixed[cls.start_key] = cls.start_kind.resolve_paths(first, folder)
        return fixed
