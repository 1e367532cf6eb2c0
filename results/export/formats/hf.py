"""The folder of Hugging Face `transformers`, and the tensors of a model as they are."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from results.checkpoints.streaming_hash import hash_file
from results.export.exportable import ModelSource
from results.export.format import Format, Runtime
from search_spaces.errors import UserError

TRANSFORMERS = Runtime("run_transformers.py", 1e-4)


class HuggingFace(Format):
    """Safetensors, configuration, tokenizer and generation settings, for `from_pretrained`."""

    weights = (".safetensors",)
    runtimes = (TRANSFORMERS,)

    def write(self, model: ModelSource, folder: Path) -> None:
        """See the base class."""
        model.write_hf(folder)

    def load_line(self, folder: Path) -> str:
        """Uses a class of `transformers`, or the model code in the folder; see the base class."""
        config = json.loads((folder / "config.json").read_text())
        own, made = config.get("auto_map", {}), (config.get("architectures") or [""])[0]
        kind = made.partition("For")[2]
        known = f"AutoModelFor{kind if kind.endswith('Classification') else 'CausalLM'}"
        auto = next((name for name in own if name.startswith("AutoModel")), known)
        return f'{auto}.from_pretrained("{{folder}}"{", trust_remote_code=True" if own else ""})'


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
        first, *more = sorted(file.name for file in folder.glob("*.safetensors"))
        if not more:
            return f'safetensors.torch.load_file("{{folder}}/{first}")'
        every = 'Path("{folder}").glob("*.safetensors")'
        return f"[safetensors.torch.load_file(file) for file in {every}]"
