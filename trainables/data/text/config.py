"""Settings of the text that a language model is trained on; no torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trainables.config import Problem, path_in
from trainables.data.bad_rows import OnBadData
from trainables.data.hub import HUB
from trainables.data.readers import ending_of, matching_files, path_problem

STDLIB_MAX_BYTES = 3_000_000


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Globs = Annotated[list[str], BeforeValidator(_as_list)]
"""A glob, or a list of them."""


Splits = Literal["digest", "file_names"]
SPLITS = (
    "digest splits the texts themselves; file_names: train.*, selection.* and test.* are the"
    " splits, as a data stage writes them"
)


class SelectionSet(BaseModel):
    """Files of a named set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    paths: Globs = Field(description="as data.paths")
    weight: float | None = Field(None, gt=0, description="of the set's loss in eval_loss")


def _as_set(value: object) -> object:
    return {"paths": value} if isinstance(value, str | list) else value


def _check_sets(sets: dict[str, SelectionSet]) -> dict[str, SelectionSet]:
    for name, one in sets.items():
        if not re.fullmatch(r"[\w-]+", name):
            raise ValueError(f"a name has letters, digits, _ and -, got {name!r}")
        if not one.paths:
            raise ValueError(f"{name} needs paths")
    without = [name for name, one in sets.items() if one.weight is None]
    if 0 < len(without) < len(sets):
        raise ValueError(f"{without[0]} has no weight; give all sets one, or none")
    return sets


_Set = Annotated[
    SelectionSet, BeforeValidator(_as_set, json_schema_input_type=SelectionSet | str | list[str])
]
Sets = Annotated[dict[str, _Set], AfterValidator(_check_sets)]
SETS = (
    "named sets of other files, {code: code.jsonl, chat: {paths: chat/*.jsonl, weight: 0.3}}, which"
    " are not trained on. Each has the metric eval_loss/NAME, on half of its texts (by their"
    " digests; the others are its test split). Weights, of all sets or none: eval_loss is the"
    " weighted mean over the sets"
)
_NOT_OF_SETS = ("max_bytes", "max_rows", "difficulty", "split_by")
"""Settings that are of `paths` only."""


class NamedSets(BaseModel):
    """Settings of data, with named sets on which models are evaluated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    if TYPE_CHECKING:  # fields of the subclasses
        paths: Globs
        splits: Splits
        selection: Sets

    @property
    def weights(self) -> dict[str, float]:
        """Part of each named set in `eval_loss`; empty if that is of the selection split."""
        given = {name: one.weight for name, one in self.selection.items() if one.weight is not None}
        return {name: weight / sum(given.values()) for name, weight in given.items()}

    def notes(self) -> list[str]:
        """What `eval_loss` is, if the named sets have weights."""
        parts = (f"{weight:.3g} of {name}" for name, weight in self.weights.items())
        return [f"eval_loss: {' + '.join(parts)}"] if self.weights else []

    def named_sets(self) -> dict[str, Self]:
        """The settings by which each named set is read."""
        changed: dict[str, Any] = {"source": "files", "splits": "digest", "selection": {}}
        changed |= {key: None for key in _NOT_OF_SETS if key in type(self).model_fields}
        return {
            name: self.model_copy(update={**changed, "paths": one.paths})
            for name, one in sorted(self.selection.items())
        }

    def path_problems(self) -> list[Problem]:
        """Globs without a match, and files of named sets that are trained on."""
        found: list[Problem] = []
        sets = {("data", "selection", name): one.paths for name, one in self.selection.items()}
        for place, globs in [(("data", "paths"), self.paths), *sets.items()]:
            problems = map(path_problem, globs)
            found += [(place, problem) for problem in problems if problem is not None]
        if found or not sets:
            return found
        files = matching_files(self.paths)
        trained = {f.resolve() for f in files if self.splits == "digest" or f.stem == "train"}
        for place, globs in sets.items():
            both = trained & {file.resolve() for file in matching_files(globs)}
            found += [(place, f"{file} is trained on: data.paths") for file in sorted(both)[:1]]
        return found


class DataConfig(NamedSets):
    """The text to train on. It is split 90/5/5 into train, selection and test."""

    source: Literal["stdlib", "files"] = Field(
        "stdlib",
        description="stdlib: the sources of this machine's Python standard library; files: `paths`",
    )
    paths: Globs = Field(
        default_factory=list,
        description="files: a glob or a list of globs; `**` crosses folders. Also of a data set of"
        " the hub: hf://datasets/OWNER/NAME@REVISION/**/*.parquet",
    )
    format: Literal["auto", "text", "jsonl", "parquet"] = Field(
        "auto",
        description="files: auto goes by the ending (.jsonl, also with .gz or .zst, .parquet;"
        " .json, .csv and .tsv are refused; else plain text in UTF-8)",
    )
    text_field: str = Field("text", description="files: JSONL key or Parquet column of the text")
    on_bad_data: OnBadData = Field(
        "fail",
        description="files: reaction to a file, row group or line that cannot be read; skip"
        " lists them in the log and in the cache's meta.json",
    )
    splits: Splits = Field("digest", description=f"files: {SPLITS}")
    max_bytes: int | None = Field(
        None,
        gt=0,
        description="bytes of text to use at most; null: 3,000,000 of stdlib, all of files",
    )
    selection: Sets = Field(default_factory=dict, description=SETS)

    @model_validator(mode="after")
    def _paths_belong_to_files(self) -> DataConfig:
        if self.source == "files" and not self.paths:
            raise ValueError("source 'files' needs paths, for example paths: texts/*.txt")
        if self.source != "files" and self.paths:
            raise ValueError("paths has an effect only with source: files")
        return self

    def notes(self) -> list[str]:
        """How many files of each kind there are, and what the base class says."""
        kinds = Counter(
            ending_of(file) or "without an ending" for file in matching_files(self.paths)
        )
        found = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        return [*([f"data: files: {found}"] if found else []), *super().notes()]

    @property
    def limit(self) -> int | None:
        """Bytes of text to use at most, None for all."""
        if self.max_bytes is None and self.source == "stdlib":
            return STDLIB_MAX_BYTES
        return self.max_bytes


def paths_in(
    data: dict[str, Any], folder: Path, keys: Sequence[str] = ("paths",)
) -> dict[str, Any]:
    """The settings with relative paths under some keys made absolute, as of `path_in`, also those
    of named sets."""
    fixed = dict(data)
    if isinstance(sets := data.get("selection"), dict):
        given = {name: _as_set(one) for name, one in sets.items()}
        fixed["selection"] = {
            name: paths_in(one, folder) if isinstance(one, dict) else one
            for name, one in given.items()
        }
    for key in keys:
        if isinstance(paths := _as_list(data.get(key)), list):
            fixed[key] = [_path_in(folder, str(path)) for path in paths]
    return fixed


def _path_in(folder: Path, path: str) -> str:
    if path.startswith(HUB):
        return path
    own = Path(path).expanduser()
    return path_in(folder, str(own), globs=True) or str(folder / own)


def key_settings(
    data: BaseModel, *later: str, exclude: Iterable[str] = ("paths", "selection")
) -> dict[str, Any]:
    """The settings of data for a cache's key.

    Args:
        data: the settings.
        later: fields that are left out where they have their default: keys from before they existed
            stay valid.
        exclude: fields that do not change the data.
    """
    fields = type(data).model_fields
    same = {name for name in later if getattr(data, name) == fields[name].default}
    return data.model_dump(exclude={*exclude, *same})
