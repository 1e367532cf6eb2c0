"""Hyperparameters of the shape of a language model that is trained from scratch; no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from trainables.causal_lm.experts import ExpertsConfig
from trainables.training.communication.config import DataParallelConfig

FROM_SCRATCH = (
    "size",
    "hidden_size",
    "num_layers",
    "num_heads",
    "intermediate_size",
    "experts",
    "vocab_size",
    "tokenizer",
)
TOKENIZER = ("model_name_or_path", "tokenizer", "vocab_size")
"""Hyperparameters that choose the tokenizer: a mean over tokens compares models of one only."""
HEAD_WIDTH = 16
"""Default. Never change it: sweeps that began with version 0.1 do not store it, and the shapes of
weights do not show it."""
WIDE_FROM, WIDE = 256, 64
"""`head_width: auto`: heads have 64 units from this hidden_size on."""
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 64, "num_layers": 2},
    "small": {"hidden_size": 768, "num_layers": 12, "intermediate_size": 2048, "num_heads": 12},
    "medium": {"hidden_size": 1024, "num_layers": 24, "intermediate_size": 2816, "num_heads": 16},
    "large": {"hidden_size": 2048, "num_layers": 20, "intermediate_size": 5632, "num_heads": 16},
}
"""With 50,304 tokens: 3.3 M (of which 3.2 M vectors of tokens), 124 M, 360 M and 1.13 B weights.
Heads of fewer than 64 units leave the tiles of flash attention kernels partly empty."""


class ShapeConfig(DataParallelConfig):
    """Base of the hyperparameters of a causal language model: its shape and vocabulary."""

    size: Literal["tiny", "small", "medium", "large"] | None = Field(
        None,
        description="a shape by name, as hidden_size/num_layers/intermediate_size/num_heads: tiny"
        " 64/2/176/4, small 768/12/2048/12, medium 1024/24/2816/16, large 2048/20/5632/16; keys"
        " given beside it win",
    )
    hidden_size: int = Field(64, gt=0, description="width of the residual stream, in units")
    num_layers: int = Field(2, gt=0, description="transformer blocks")
    num_heads: int | None = Field(
        None,
        gt=0,
        description="attention heads; null: hidden_size / head_width",
    )
    head_width: Literal["auto"] | Annotated[int, Field(gt=0)] = Field(
        HEAD_WIDTH,
        description="without num_heads: units of a head. auto: 16 below a hidden_size of 256, else"
        " 64 or more, with which a GPU is faster. Files of new sweeps store auto",
    )
    intermediate_size: int | None = Field(
        None,
        gt=0,
        description="width of the MLP, in units; null: 8/3 of hidden_size, up to a multiple of 8",
    )
    experts: ExpertsConfig | None = Field(
        None,
        description="a mixture of experts in place of each MLP; null: none",
    )
    vocab_size: int = Field(
        512, ge=257, le=1_000_000, description="tokens of the byte-level BPE: 256 bytes and more"
    )
    tokenizer: str | None = Field(
        None,
        description="of a model from scratch: a folder, or a hub id, whose tokenizer it takes, with"
        " its vocab_size; null: a BPE of the text",
    )

    parametrization: Literal["standard", "mup", "completep"] = Field(
        "standard",
        description="of a model from scratch. mup: initial values and learning rates follow the"
        " width, so that the best learning rate of a narrow model is that of a wide one; completep:"
        " the depth too. They are equal to standard at the base's size",
    )
    base_hidden_size: int = Field(
        64, gt=0, description="mup, completep: hidden_size of the model whose settings hold"
    )
    base_num_layers: int = Field(
        2, gt=0, description="completep: num_layers of the model whose settings hold"
    )

    @model_validator(mode="before")
    @classmethod
    def _shape_of_size(cls, given: Any) -> Any:
        size = given.get("size") if isinstance(given, dict) else None
        return {**SIZES[size], **given} if isinstance(size, str) and size in SIZES else given

    def refuse_shape(self, start: str) -> None:
        """Refuse what is given of a shape: a model that starts from another one has its shape.

        Raises:
            ValueError: something is given.
        """
        fields = type(self).model_fields
        given = [name for name in FROM_SCRATCH if getattr(self, name) != fields[name].default]
        if given:
            raise ValueError(
                f"{', '.join(given)}: no effect with {start}, which has its own;"
                " remove one or the other"
            )

    def check_parametrization(self, *, pretrained: bool) -> None:
        """Refuse a parametrization that has no rule here, and a base without one.

        Raises:
            ValueError: so it is.
        """
        fields, kind = type(self).model_fields, self.parametrization
        unused = {"standard": ("base_hidden_size", "base_num_layers"), "mup": ("base_num_layers",)}
        for name in unused.get(kind, ()):
            if getattr(self, name) != fields[name].default:
                raise ValueError(f"{name}: no effect with parametrization: {kind}")
        if kind == "standard":
            return
        if pretrained:
            raise ValueError("parametrization is of a model from scratch; remove it")
        if self.experts is not None:
            raise ValueError(f"parametrization: {kind} has no rule for experts")

    @property
    def base(self) -> Self:
        """Of the model whose settings hold, with `parametrization` other than standard."""
        sizes = {"hidden_size": self.base_hidden_size, "num_layers": self.base_num_layers}
        return self.model_copy(update=sizes)

    @property
    def heads(self) -> int:
        """Attention heads."""
        if self.num_heads is not None:
            return self.num_heads
        if self.head_width != "auto":
            return max(1, self.hidden_size // self.head_width)
        if self.hidden_size < WIDE_FROM:
            return max(1, self.hidden_size // HEAD_WIDTH)
        most = self.hidden_size // WIDE
        return next((n for n in range(most, 1, -1) if self.hidden_size % (2 * n) == 0), 1)

    @property
    def mlp_size(self) -> int:
        """Width of the MLP: SwiGLU at 8/3 costs what a plain MLP at 4 does (Shazeer 2020)."""
        return self.intermediate_size or -(-8 * self.hidden_size // 24) * 8

    @property
    def num_parameters(self) -> int | None:
        """Weights of the model; None if the files of its tokenizer would have to be read."""
        if self.tokenizer is not None:
            return None
        mlp = 3 * self.hidden_size * self.mlp_size
        if self.experts is not None:
            mlp = self.experts.mlp_parameters(self.hidden_size, mlp)
        block = 4 * self.hidden_size**2 + mlp
        norms = (2 * self.num_layers + 1) * self.hidden_size
        return self.vocab_size * self.hidden_size + self.num_layers * block + norms
