"""Settings of the text that a language model is trained on; no torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trainables.config import path_in
from trainables.data.bad_rows import OnBadData
from trainables.data.hub import HUB

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


class DataConfig(BaseModel):
    """The text to train on. It is split 90/5/5 into train, selection and test."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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

    @model_validator(mode="after")
    def _paths_belong_to_files(self) -> DataConfig:
        if self.source == "files" and not self.paths:
            raise ValueError("source 'files' needs paths, for example paths: texts/*.txt")
        if self.source != "files" and self.paths:
            raise ValueError("paths has an effect only with source: files")
        return self

    @property
    def limit(self) -> int | None:
        """Bytes of text to use at most, None for all."""
        if self.max_bytes is None and self.source == "stdlib":
            return STDLIB_MAX_BYTES
        return self.max_bytes


def paths_in(
    data: dict[str, Any], folder: Path, keys: Sequence[str] = ("paths",)
) -> dict[str, Any]:
    """The settings with relative paths under some keys made absolute, as of `path_in`."""
    fixed = dict(data)
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
    data: BaseModel, *later: str, exclude: Iterable[str] = ("paths",)
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
