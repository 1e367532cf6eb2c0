"""Hyperparameters of a trainable: a pydantic model, and its errors in words for users."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from search_spaces.errors import suggest
from search_spaces.layout import Layout
from search_spaces.nested import show
from trainables.parallel.footprint import RankMemory

M = TypeVar("M", bound="TrainableConfig")
Problem = tuple[tuple[str, ...], str]
"""The path of names to a value in a configuration, and the mistake in the value."""
_BYTES_PER_PARAMETER = 3 * 4
"""A checkpoint holds float32 weights and AdamW's two averages of their gradients."""


class TrainableConfig(BaseModel):
    """Base of every trainable's hyperparameters: frozen, unknown keys refused.

    Give each field a `Field(description=...)` with its unit: it is the documentation. Raise
    `ValueError` in a validator for values that do not fit together.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def problems(cls, config: Mapping[str, Any]) -> list[Problem]:
        """All mistakes in a configuration; an empty list for a valid one."""
        from search_spaces.loading.explain import MAX_PROBLEMS  # it imports the whole schema

        try:
            cls.model_validate(dict(config))
        except ValidationError as e:
            return [explain(error, cls) for error in e.errors(include_url=False)[:MAX_PROBLEMS]]
        return []

    @classmethod
    def with_init_seed(cls, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """A configuration whose initial weights derive from `seed`, unless it has their seed.

        By default sets `init_seed`, if the configuration has such a field.
        """
        given = "init_seed" in config or "init_seed" not in cls.model_fields
        return config if given else {**config, "init_seed": seed}

    @classmethod
    def for_new_sweep(cls, config: dict[str, Any]) -> dict[str, Any]:
        """The configuration that the file of a new sweep stores; by default the given one.

        Where a default becomes better, this adds the new value. The field's own default stays, for
        the sweeps that began before.
        """
        return config

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """A configuration with relative paths made absolute: workers run elsewhere.

        Args:
            folder: of the sweep file, whose paths are those of `path_in`.
        """
        return config

    @classmethod
    def for_probe(cls, config: dict[str, Any], steps: int) -> dict[str, Any]:
        """The configuration with which so many steps are measured; by default the given one.

        It trains for longer, and does not report before.
        """
        return config

    @property
    def checkpoint_bytes(self) -> int | None:
        """Approximate size of a checkpoint, from `num_parameters`; None if that is unknown."""
        parameters: int | None = getattr(self, "num_parameters", None)
        return None if parameters is None else _BYTES_PER_PARAMETER * int(parameters)

    def halve_micro_batch(self, workers: int) -> dict[str, int] | None:
        """Changes after which a step takes about half the memory and computes the same, or None.

        By default halves `micro_batch_size` (samples that one worker computes at once; None: all
        of its share), if there is such a field beside `batch_size` (samples per step, of all
        workers together).
        """
        fields = vars(self)
        if not {"micro_batch_size", "batch_size"} <= fields.keys():
            return None
        share = -(-fields["batch_size"] // workers)
        now: int = min(share, fields["micro_batch_size"] or share)
        return {"micro_batch_size": now // 2} if now > 1 else None

    def missing_files(self) -> list[Problem]:
        """Values that name files or folders which are not on this machine; by default none."""
        return []

    def notes(self) -> list[str]:
        """Lines on the data of a configuration without `missing_files`; by default none."""
        return []

    def validate_workers(self, workers: Sequence[int]) -> tuple[str, str] | None:
        """Check that training is the same for each of these numbers of workers.

        By default checks `batch_size`, if there is a `micro_batch_size` beside it: the workers
        share a batch equally.

        Args:
            workers: a single number, or all that an elastic trial may have.

        Returns:
            The name of a field that prevents it, and its mistake; or None. Without a name, it is
            of `resources.workers`.
        """
        if not {"micro_batch_size", "batch_size"} <= vars(self).keys():
            return None
        batch: int = vars(self)["batch_size"]
        uneven = ", ".join(str(n) for n in workers if batch % n)
        if not uneven:
            return None
        problem = (
            f"is of all workers together and must divide by their number, {uneven}, got {batch}"
        )
        return "batch_size", problem

    def validate_layout(self, layout: Layout) -> tuple[str, str] | None:
        """Check that a layout fits the model; by default it does.

        Returns:
            The name of a field that prevents it, and its mistake; or None. Without a name, the
            nearest layout that fits is added to the mistake.
        """
        return None

    def layout_memory(self, layout: Layout, *, on_gpu: bool) -> RankMemory | None:
        """What a training step takes on the rank of a layout that needs most; None: not known.

        `resources.layout: auto` needs it. A smaller micro-batch takes less memory, and so do more
        ranks of `dp_shard`.

        Args:
            layout: one that fits, see `validate_layout`.
            on_gpu: whether the ranks have GPUs, with other kernels.
        """
        return None


_RULES: dict[str, str] = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "list": "must be a list",
    "model": "must be a mapping of names to values",
    "dict": "must be a mapping of names to values",
    "finite": "must be a finite number",
}
_BOUNDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than": lambda c: f"must be > {c['gt']}",
    "greater_than_equal": lambda c: f"must be >= {c['ge']}",
    "less_than": lambda c: f"must be < {c['lt']}",
    "less_than_equal": lambda c: f"must be <= {c['le']}",
    "literal_error": lambda c: f"must be one of {str(c['expected']).replace(chr(39), '')}",
}


def explain(error: ErrorDetails, model: type[BaseModel]) -> tuple[tuple[str, ...], str]:
    """The path of names to the wrong value, and the message."""
    path = tuple(str(step) for step in error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        names = _owner(path, model).model_fields
        return path, f"unknown hyperparameter '{path[-1]}'{suggest(path[-1], names)}"
    if kind == "missing":
        return path, "is required"
    if kind == "value_error":
        return path, str(context["error"])
    rule = _BOUNDS[kind](context) if kind in _BOUNDS else _RULES.get(kind.split("_")[0])
    return path, f"{rule or error['msg']}, got {show(error['input'])}"


def nested_config(kind: type[M], given: Mapping[str, Any], key: str) -> M:
    """The configuration in a key of another one.

    Raises:
        ValueError: every mistake in it.
    """
    try:
        return kind.model_validate(given)
    except ValidationError:
        found = (f"{key}.{'.'.join(path)}: {text}" for path, text in kind.problems(given))
        raise ValueError("; ".join(found)) from None


def _owner(path: tuple[str, ...], model: type[BaseModel]) -> type[BaseModel]:
    """The nested model that has the last name of a path."""
    for name in path[:-1]:
        field = model.model_fields.get(name)
        if field is None or not isinstance(field.annotation, type):
            return model
        if issubclass(field.annotation, BaseModel):
            model = field.annotation
    return model


def path_in(folder: Path, path: str, *, globs: bool = False) -> str | None:
    """An existing path made absolute; None if there is none.

    It is relative to the folder, or else to the working directory.

    Args:
        globs: whether the path may be a pattern, which must have a match.
    """
    for base in (folder, Path.cwd()):
        try:
            found = base / Path(path).expanduser()
            if found.exists() or (globs and any(glob.iglob(str(found), recursive=True))):
                return str(found.absolute())
        except (OSError, ValueError, RuntimeError):  # too long, a zero byte, an unknown user
            return None
    return None
