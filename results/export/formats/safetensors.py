"""The tensors of a model as they are, for any program that reads safetensors."""

from __future__ import annotations

import shutil
from pathlib import Path

from results.checkpoints.streaming_hash import hash_file
from results.export.exportable import ModelSource
from results.export.format import Format
from search_spaces.errors import UserError


class Safetensors(Format):
    """The file of the weights, several with their index, or an adapter; compared byte by byte."""

    weights = (".safetensors",)
    patterns = ("model*.safetensors*", "adapter_*")

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class."""
        for file in (f for pattern in self.patterns for f in model.weights.glob(pattern)):
            copy = folder / file.name
            shutil.copyfile(file, copy)
            if hash_file(copy).sha256 != hash_file(file).sha256:
                raise UserError(f"{copy}: not exported, the copy differs")

    def load_line(self, folder: Path) -> str:
        """See the base class."""
        return 'safetensors.torch.load_file("{folder}/model.safetensors")'
