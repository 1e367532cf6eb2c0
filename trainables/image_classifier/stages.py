"""The stages of a ResNet: consecutive blocks, with the first convolution or the scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from trainables.image_classifier.config import ImageClassifierConfig
from trainables.image_classifier.model import ImageNetwork, image_losses
from trainables.parallel.fsdp import shard_weights
from trainables.parallel.mesh import Mesh
from trainables.parallel.pipeline import Activations, Pipeline, RemoteLayer, layers_of_stages
from trainables.training.precision import autocast


class BlockStage(nn.Module):
    """Some blocks of a ResNet."""

    def __init__(self, model: nn.Module, own: range, config: ImageClassifierConfig) -> None:
        """Share the modules of a model.

        Args:
            model: a `SmallResNet`.
            own: the blocks of this stage.
            config: gives the dtype of the computation, and the loss.
        """
        super().__init__()
        resnet: Any = model
        self._is_first, self._is_last = own.start == 0, own.stop == len(resnet.blocks)
        self.ends = nn.ModuleList(
            [resnet.stem, resnet.stem_norm] * self._is_first + [resnet.classifier] * self._is_last
        )
        self.blocks = nn.Sequential(*[resnet.blocks[number] for number in own])
        self._whole = [resnet]  # a list: its other modules are not of this stage
        self._config = config

    def forward(
        self,
        given: torch.Tensor,
        targets: torch.Tensor | None = None,
        others: torch.Tensor | None = None,
        keep: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """As `Pipeline` says.

        Args:
            given: normalised pixels, or activations, [images, channels, height, width].
            targets, others, keep: as `image_losses` takes them.
        """
        (resnet,) = self._whole
        with autocast(self._config.dtype, given.device):
            taken = resnet.first_features(given) if self._is_first else given
            features: torch.Tensor = self.blocks(taken)
            if not self._is_last:
                return features.float()
            scores: torch.Tensor = resnet.scores(features).float()
        if targets is None:
            return scores
        losses = image_losses(scores, targets, self._config, others, keep)
        return losses.sum().reshape(1)


def make_pipeline(classifier: ImageNetwork, config: ImageClassifierConfig, mesh: Mesh) -> None:
    """Keep this rank's stages of a ResNet, in place; every rank has the whole model before."""
    resnet: Any = classifier.model
    layout, count = mesh.layout, len(resnet.blocks)
    parts = layers_of_stages(count, layout.num_stages)
    mine = {n: p for n, p in enumerate(parts) if n % layout.pp == mesh.coordinates["pp"]}
    stages = {number: BlockStage(resnet, part, config) for number, part in mine.items()}
    for number in set(range(count)) - {block for part in mine.values() for block in part}:
        resnet.blocks[number] = RemoteLayer()
    if 0 not in stages:
        resnet.stem, resnet.stem_norm = RemoteLayer(), RemoteLayer()
    if layout.num_stages - 1 not in stages:
        resnet.classifier = RemoteLayer()
    for stage in stages.values():
        shard_weights(stage, stage.blocks, mesh, torch.float32)
    widths, depth = resnet.config.widths, resnet.config.depth

    def taken(stage: int, pixels: tuple[int, ...]) -> tuple[int, ...]:
        images, _, height, width = pixels
        last = (parts[stage].start - 1) // depth  # place in `widths` of the block before
        return images, widths[last], _halved(height, last), _halved(width, last)

    sent = Activations(taken, torch.float32)
    classifier.pipeline.append(Pipeline(resnet, stages, mesh, sent))


def _halved(size: int, times: int) -> int:
    """A size after so many convolutions of stride 2."""
    return -(-size // (1 << times))
