"""`tune predict`: run a model of a sweep on rows of data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from search_spaces.errors import UserError
from tuning.cli.damage import AcceptDamage
from tuning.cli.formatting import echo
from tuning.cli.options import Soup, StorageDir, Sweep, Trial, Trust
from tuning.cli.use.model import ModelOptions

if TYPE_CHECKING:
    import numpy as np
    import torch


def predict(
    sweep: Sweep,
    data: Annotated[
        Path,
        typer.Option(
            "--input",
            help="Rows: .npy, .csv (numbers, no header) or .json; texts: files as of its data; for "
            "xgboost and lightgbm a table with the columns of the training, .parquet or .csv.",
        ),
    ],
    trial: Trial = None,
    soup: Soup = None,
    trust: Trust = False,
    accept_damage: AcceptDamage = False,
    storage: StorageDir = None,
) -> None:
    """Run a model on rows of data; prints a line of JSON for each.

    Example: tune predict digits --input images.npy
    """
    import torch

    options = ModelOptions(trial, soup, trust, accept_damage, storage)
    picked = options.select(sweep, "predict with")
    try:
        cache = picked.paths.storage.cache
        trainable, source = picked.trainable, picked.source
        model = trainable.exportable(picked.config, source, cache)
    except NotImplementedError as e:
        raise UserError(f"trainable {picked.spec.trainable}: {e}") from e
    if model.predict is not None:
        for line in model.predict(data):
            echo(json.dumps(line, ensure_ascii=False))
        return
    if trainable.offers("read_rows"):
        rows = trainable.read_rows(picked.config, source, data)
    else:
        rows = _rows(data, model.examples[0], model.largest)
    _check_size(data, rows.shape, model.longest)
    with torch.no_grad():
        for output in model.module(rows):
            named: dict[str, object] = {"class": int(output.argmax())} if model.classes else {}
            if model.class_names:
                named["class"] = model.class_names[int(output.argmax())]
            echo(json.dumps({**named, "output": output.tolist()}))


def _check_size(file: Path, shape: tuple[int, ...], longest: float) -> None:
    rows, count = (*shape, 1)[:2]
    if not rows:
        raise UserError(f"--input {file}: has no row")
    if not 0 < count <= longest:
        limit = "1 or more" if math.isinf(longest) else f"1 to {longest}"
        raise UserError(f"--input {file}: rows must have {limit} numbers, not {count}")


def _rows(file: Path, like: torch.Tensor, largest: float) -> torch.Tensor:
    """Read rows with the type and shape of the model's input.

    Raises:
        UserError: the file cannot be read, or its rows have another shape, or other numbers.
    """
    import numpy as np
    import torch

    found, has_fractions = _numbers(file), like.is_floating_point()
    expected = tuple(like.shape[1:])
    if found.ndim != like.ndim or (has_fractions and found.shape[1:] != expected):
        actual = " x ".join(map(str, found.shape))
        raise UserError(
            f"--input {file}: must be rows of {' x '.join(map(str, expected))}, is {actual}"
        )
    has_columns = file.suffix == ".csv" and has_fractions and like.shape[1] > 1
    if has_columns and np.array_equal(found[:1], [range(like.shape[1])]):
        raise UserError(f"--input {file}:1: numbers the columns, and a row is expected; remove it")
    exceeds = bool(np.abs(found.astype(float)).max(initial=0) > largest)
    if like.ndim == 4 and has_fractions and (exceeds or found.dtype.kind in "iu"):
        raise UserError(
            f"--input {file}: the model takes normalized pixels, not numbers of 0 to 255;"
            " see image_mean and image_std in preprocessor_config.json of its export to hf"
        )
    least = -largest if has_fractions else 0
    if exceeds or found.min(initial=0) < least:
        raise UserError(f"--input {file}: the model takes numbers of {least:g} to {largest:g} only")
    if not has_fractions and (found % 1).any():
        raise UserError(f"--input {file}: must be whole numbers, and some are not")
    return torch.from_numpy(found).to(like.dtype)


def _numbers(file: Path) -> np.ndarray[Any, Any]:
    """The finite numbers of a file.

    Raises:
        UserError: it cannot be read, or has other values.
    """
    import numpy as np

    readers: dict[str, Callable[[], Any]] = {
        ".npy": lambda: np.load(file, allow_pickle=False),
        ".csv": lambda: np.loadtxt(file, delimiter=",", ndmin=2),
        ".json": lambda: np.asarray(json.loads(file.read_text()), dtype=float),
    }
    if file.suffix not in readers:
        raise UserError(f"--input {file}: reads .npy, .csv or .json")
    try:
        found: np.ndarray[Any, Any] = readers[file.suffix]()
    except (OSError, TypeError, ValueError, EOFError) as e:
        raise UserError(f"--input {file}: cannot be read ({e})") from e
    if found.dtype.kind not in "biuf" or not np.isfinite(found).all():
        raise UserError(f"--input {file}: must be finite numbers, and some values are not")
    return found
