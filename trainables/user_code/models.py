"""Models of user code: read from its checkpoints, scored, and made into modules for export.

The functions that do it are named in the sweep file (`user_code`). They run in this process.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from results.checkpoints.commit import Checkpoint, CheckpointError, staged, verify, verify_all
from results.export.exportable import Exportable
from results.trial_paths import LINEAGE, TrialPaths
from search_spaces.errors import UserError
from search_spaces.nested import show
from search_spaces.spec.command import UserCodeSpec
from trainables.config import Problem
from trainables.user_code import loader
from trainables.user_code.frames import note_user_lines, user_lines
from trainables.user_code.ray_train.checkpoints import newest_first, verify_kept

if TYPE_CHECKING:
    import torch

ARGUMENTS = {
    "weights": ("folder",),
    "evaluate": ("weights", "config", "split"),
    "model": ("weights", "config"),
}
"""Key of `user_code` to the arguments of its function."""


def function_problems(functions: UserCodeSpec) -> Iterator[Problem]:
    """Functions that are not there, or take other arguments; nothing is imported."""
    for key, name in functions.named.items():
        try:
            path = loader.find(name)
        except UserError as e:
            yield ("user_code", key), str(e).removeprefix("trainable ")
            continue
        for problem in loader.searches_at_import(name):
            yield ("user_code", key), problem
        _, node = loader.function(name)
        if node is not None and not _accepts(node.args, len(ARGUMENTS[key])):
            call = f"is called with ({', '.join(ARGUMENTS[key])})"
            yield ("user_code", key), f"{path}:{node.lineno}: {node.name}() {call}"


def _accepts(args: ast.arguments, count: int) -> bool:
    """Whether a function can be called with so many positional arguments."""
    most = len(args.posonlyargs) + len(args.args)
    fits = most - len(args.defaults) <= count and (count <= most or args.vararg is not None)
    return fits and None not in args.kw_defaults


def read_models(
    functions: UserCodeSpec, paths: TrialPaths
) -> Iterator[Checkpoint | CheckpointError]:
    """The checkpoints of a trial as folders with `model.safetensors`, newest first.

    Each is written when it is asked for, to the trial's `models/`.

    Raises:
        UserError: a checkpoint has no tensors that can be read.
    """
    for found in _checkpoints(paths):
        if isinstance(found, CheckpointError):
            yield found
            continue
        target = paths.model(found.step)
        with staged(target) as folder:
            _write_model(functions, found.folder, folder)
        yield Checkpoint(found.step, target, verify(target, hashes=False))


def _checkpoints(paths: TrialPaths) -> Iterator[Checkpoint | CheckpointError]:
    """The trial's own checkpoints, then those that Ray Train keeps, verified, newest first."""
    yield from verify_all(paths)
    for kept in newest_first(paths, paths.ray_train_attempts()):
        try:
            manifest = verify_kept(paths, kept)
        except CheckpointError as e:
            yield e
        else:
            yield Checkpoint(kept.step, kept.folder, manifest)


def _write_model(functions: UserCodeSpec, checkpoint: Path, folder: Path) -> None:
    from trainables.checkpointing.tensor_file import write_tensors

    if functions.weights is None:
        weights = read_tensors(checkpoint)
    else:
        weights = _tensors(_call("weights", functions.weights, checkpoint))
    write_tensors(folder / "model.safetensors", weights)
    if (checkpoint / LINEAGE).is_file():
        shutil.copyfile(checkpoint / LINEAGE, folder / LINEAGE)


def read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    """The tensors of all safetensors files below a folder.

    Raises:
        UserError: there is none, or two files have a tensor of one name.
    """
    from safetensors.torch import load_file

    found: dict[str, torch.Tensor] = {}
    for file in sorted(folder.rglob("*.safetensors")):
        tensors = load_file(file)
        if twice := found.keys() & tensors:
            raise UserError(
                f"{file}: '{min(twice)}' is in another file too; let a function choose: "
                "user_code.weights"
            )
        found |= tensors
    if not found:
        files = ", ".join(sorted(p.name for p in folder.iterdir())[:5])
        raise UserError(
            f"{folder}: no *.safetensors file in this checkpoint ({files}); let a function read "
            "it: user_code.weights"
        )
    return found


def score(
    functions: UserCodeSpec, folder: Path, config: Mapping[str, Any], split: str
) -> dict[str, list[float]]:
    """Metrics of the model in a folder; a list with one number unless it has one per example.

    Raises:
        UserError: there is no function for it, or it failed, or returned something else.
    """
    found = _call("evaluate", functions.evaluate, read_tensors(folder), dict(config), str(split))
    if not isinstance(found, Mapping) or not found:
        raise UserError(_returned("evaluate", "a dict of metrics", found))
    return {str(name): _numbers(functions, value) for name, value in found.items()}


def _numbers(functions: UserCodeSpec, value: Any) -> list[float]:
    value = value.tolist() if hasattr(value, "tolist") else value  # of torch and numpy
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not values or not all(isinstance(v, int | float) for v in values):
        raise UserError(_returned("evaluate", "numbers, or lists of numbers", value))
    return [float(v) for v in values]


def make_exportable(functions: UserCodeSpec, folder: Path, config: Mapping[str, Any]) -> Exportable:
    """The module of the model in a folder, with three inputs that differ in the batch.

    Raises:
        UserError: there is no function for it, or it failed, or returned something else.
    """
    import torch

    found = _call("model", functions.model, read_tensors(folder), dict(config))
    pair = found if isinstance(found, tuple) and len(found) == 2 else (None, None)
    module, example = pair
    if not isinstance(module, torch.nn.Module) or not isinstance(example, torch.Tensor):
        expected = "a torch module and an example input"
        raise UserError(_returned("model", expected, found))
    if not example.ndim or example.shape[0] < 2:
        raise UserError(
            f"user_code.model: {functions.model} returned an input of shape "
            f"{tuple(example.shape)}; give it a batch of at least 2 as its first dimension"
        )
    examples = example, example[:1], torch.cat([example, example])
    return Exportable(module.cpu().float().eval(), "input", "output", examples)


def _call(key: str, name: str | None, *arguments: Any) -> Any:
    if name is None:
        call = f"{key}({', '.join(ARGUMENTS[key])})"
        raise UserError(
            f"user_code.{key}: not in the sweep file; it names your function {call}: "
            f"tune resume SWEEP --set user_code.{key}=script.py:{key}"
        )
    try:
        return loader.load(name)(*arguments)
    except UserError:
        raise
    except Exception as e:
        note_user_lines(e)
        line = f"{type(e).__name__}: {e}".splitlines()[0]
        raise UserError(f"user_code.{key}: {name} failed: {line}{user_lines(e)}") from e


def _tensors(found: Any) -> dict[str, torch.Tensor]:
    import torch

    is_mapping = isinstance(found, Mapping) and bool(found)
    if is_mapping and all(isinstance(value, torch.Tensor) for value in found.values()):
        return {str(name): tensor for name, tensor in found.items()}
    raise UserError(_returned("weights", "a dict of tensors", found))


def _returned(key: str, expected: str, found: Any) -> str:
    return f"user_code.{key}: the function must return {expected}, got {show(found)}"
