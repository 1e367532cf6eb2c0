"""ResNets for small images as `transformers` models. An export contains this file as its code."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import ImageClassifierOutput

GROUPS = 8


class SmallResNetConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """Sizes of a ResNet of basic blocks whose first convolution keeps the resolution."""

    model_type = "small_resnet"

    def __init__(
        self,
        num_channels: int = 3,
        widths: tuple[int, ...] = (16, 32, 64),
        depth: int = 1,
        norm: str = "batch",
        **more: Any,
    ) -> None:
        self.num_channels = num_channels
        self.widths = list(widths)
        self.depth = depth
        self.norm = norm
        super().__init__(**more)


class SmallResNet(PreTrainedModel):  # type: ignore[no-untyped-call]
    """Classifies images (He et al. 2015, section 4.2): stages of `depth` basic blocks."""

    config_class = SmallResNetConfig
    _no_split_modules = ["_Block"]  # noqa: RUF012 - as its base class has it
    main_input_name = "pixel_values"

    def __init__(self, config: SmallResNetConfig) -> None:
        super().__init__(config)
        widths = config.widths
        self.stem = _conv(config.num_channels, widths[0], 3, 1)
        self.stem_norm = _norm(config.norm, widths[0])
        blocks, width = [], widths[0]
        for stage, wide in enumerate(widths):
            for place in range(config.depth):
                stride = 2 if stage and not place else 1
                blocks.append(_Block(width, wide, stride, config.norm))
                width = wide
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(width, int(config.num_labels or 0))
        self.post_init()  # type: ignore[no-untyped-call]

    def forward(self, pixel_values: torch.Tensor) -> ImageClassifierOutput:
        """Normalised pixels [images, channels, height, width] to logits [images, classes]."""
        features = self.blocks(self.first_features(pixel_values))
        return ImageClassifierOutput(logits=self.scores(features))

    def first_features(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Input of the first block, [images, channels, height, width]."""
        return F.relu(self.stem_norm(self.stem(pixel_values)))

    def scores(self, features: torch.Tensor) -> torch.Tensor:
        """Logits [images, classes] of the last block's output."""
        scores: torch.Tensor = self.classifier(features.mean((2, 3)))
        return scores

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Conv2d):
            init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        else:
            super()._init_weights(module)  # type: ignore[no-untyped-call]


class _Block(nn.Module):
    def __init__(self, width: int, wide: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(width, wide, 3, stride), _norm(norm, wide)
        self.conv2, self.norm2 = _conv(wide, wide, 3, 1), _norm(norm, wide)
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or width != wide:
            self.shortcut = nn.Sequential(_conv(width, wide, 1, stride), _norm(norm, wide))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(out)) + self.shortcut(x))


def _conv(width: int, wide: int, size: int, stride: int) -> nn.Module:
    return nn.Conv2d(width, wide, size, stride, padding=size // 2, bias=False)


def _norm(kind: str, width: int) -> nn.Module:
    return nn.BatchNorm2d(width) if kind == "batch" else nn.GroupNorm(GROUPS, width)
