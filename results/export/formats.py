"""The formats a model is exported to: one dict from a name to how it is written and judged."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.export.exportable import Exportable
from results.export.silence import quiet
from search_spaces.errors import UserError

if TYPE_CHECKING:
    import torch

EXTRA = "tune-platform[export]"


@dataclass(frozen=True)
class Model:
    """Where an export's bytes come from.

    Attributes:
        load: makes the model; `NotImplementedError` when the trainable has no such form.
        write_hf: writes what `transformers` loads into an empty folder; likewise.
    """

    load: Callable[[], Exportable]
    write_hf: Callable[[Path], None]

    @cached_property
    def exportable(self) -> Exportable:
        """The model, loaded once."""
        return self.load()


@dataclass(frozen=True)
class Runtime:
    """What judges a copy of a model.

    Attributes:
        script: in `runtimes/` beside this file; runs the copy in a fresh process which has nothing
            of ours.
        tolerance: largest difference of an output, as a part of the largest output (at least 1).
        sees: what it tells of the original's output.
        needs: the module that it is, where not every installation has it: then it judges where it
            is there.
    """

    script: str
    tolerance: float
    sees: Callable[[torch.Tensor], torch.Tensor] = lambda output: output
    needs: str | None = None

    @property
    def there(self) -> bool:
        """Whether it can be asked here."""
        return self.needs is None or importlib.util.find_spec(self.needs) is not None


@dataclass(frozen=True)
class Format:
    """One target.

    Attributes:
        write: puts the files of the model into a folder.
        runtimes: judge what was written.
        how: given the folder, one line of Python that loads it; `{folder}` stands for its name.
        needs: modules of `tune-platform[export]`.
    """

    write: Callable[[Model, Path], None]
    runtimes: tuple[Runtime, ...]
    how: Callable[[Path], str]
    needs: tuple[str, ...] = ()

    def check_installed(self, name: str) -> None:
        """Refuse a format whose packages are not there.

        Raises:
            UserError: says what to install.
        """
        missing = [m for m in self.needs if importlib.util.find_spec(m) is None]
        if missing:
            raise UserError(
                f"--to {name}: needs {', '.join(missing)}; install with: pip install '{EXTRA}'"
            )


def write_hf(model: Model, folder: Path) -> None:
    """Safetensors, configuration, tokenizer and generation settings, as `transformers` has them."""
    model.write_hf(folder)


def write_onnx(model: Model, folder: Path) -> None:
    """`model.onnx` by `torch.onnx.export(dynamo=True)`; weights over 2 GB go beside it."""
    import torch

    made = model.exportable
    with quiet():
        program = torch.onnx.export(
            made.module,
            (made.examples[0],),
            dynamo=True,
            input_names=[made.input_name],
            output_names=[made.output_name],
            dynamic_shapes=(_dynamic(made),),
            verbose=False,
        )
        if program is None:
            raise RuntimeError("torch.onnx.export gave no program")
        program.save(str(folder / "model.onnx"))


def write_pt2(model: Model, folder: Path) -> None:
    """`model.pt2` by `torch.export`, for `torch.export.load` or AOTInductor."""
    import torch

    made = model.exportable
    with quiet():
        program = torch.export.export(
            made.module, (made.examples[0],), dynamic_shapes=(_dynamic(made),), strict=False
        )
        torch.export.save(program, folder / "model.pt2")


def _dynamic(made: Exportable) -> dict[int, Any]:
    import torch

    # AUTO, where a named Dim would refuse: an exporter may find a size to be bounded or tied.
    return dict.fromkeys(made.dynamic, torch.export.Dim.AUTO)


def _write_gguf(model: Model, folder: Path) -> None:
    from results.export.gguf import write_gguf

    write_gguf(model, folder)


def last_token(logits: torch.Tensor) -> torch.Tensor:
    """Log-probabilities [sequences, vocabulary] of the last token, given those before it."""
    return logits[:, -2].double().log_softmax(-1)


def load_hf(folder: Path) -> str:
    """With `transformers`: one of its own models, or one whose code is in the folder."""
    own = json.loads((folder / "config.json").read_text()).get("auto_map", {})
    auto = next((name for name in own if name.startswith("AutoModel")), "AutoModelForCausalLM")
    return f'{auto}.from_pretrained("{{folder}}"{", trust_remote_code=True" if own else ""})'


_TRANSFORMERS = Runtime("run_transformers.py", 1e-4)
_LLAMA_CPP = Runtime("run_llama_cpp.py", 1e-3, last_token, needs="xllamacpp")

FORMATS: dict[str, Format] = {
    "hf": Format(write_hf, (_TRANSFORMERS,), load_hf),
    "onnx": Format(
        write_onnx,
        (Runtime("run_onnxruntime.py", 1e-3),),
        lambda _: 'onnxruntime.InferenceSession("{folder}/model.onnx")',
        ("onnx", "onnxscript", "onnxruntime"),
    ),
    "pt2": Format(
        write_pt2,
        (Runtime("run_torch.py", 1e-4),),
        lambda _: 'torch.export.load("{folder}/model.pt2")',
    ),
    "gguf": Format(
        _write_gguf,
        (_TRANSFORMERS, _LLAMA_CPP),
        lambda _: 'AutoModelForCausalLM.from_pretrained("{folder}", gguf_file="model.gguf")',
        ("gguf", "accelerate"),
    ),
}
"""Name after `--to` → format. `mlflow` is made of `onnx`, see `results.tracking.model_registry`."""
