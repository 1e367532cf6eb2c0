"""The folder format of Hugging Face `transformers`."""

from __future__ import annotations

import json
from pathlib import Path

from results.export.exportable import ModelSource
from results.export.format import Format, Runtime

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
        own = json.loads((folder / "config.json").read_text()).get("auto_map", {})
        auto = next((name for name in own if name.startswith("AutoModel")), "AutoModelForCausalLM")
        return f'{auto}.from_pretrained("{{folder}}"{", trust_remote_code=True" if own else ""})'
