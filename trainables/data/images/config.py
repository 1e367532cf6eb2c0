"""Where the images of `image_classifier` are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from trainables.data.bad_rows import OnBadData
from trainables.data.text.config import Globs, paths_in

_UNREAD = {"hdf5", "h5", "hdf", "tfrecord", "tfrecords"}
"""Formats that are refused, by the name or the ending of a file."""


def _refuse_unread(value: object) -> object:
    for name in value if isinstance(value, list) else [value]:
        form = str(name).rpartition(".")[2]
        if form.lower() in _UNREAD:
            raise ValueError(
                f"{form} is not read; write a Parquet file with a column of encoded images and one"
                " of labels: pandas.DataFrame({'image': [...], 'label': [...]})"
                ".to_parquet('images.parquet')"
            )
    return value


Images = Annotated[Globs, BeforeValidator(_refuse_unread)]


class ImageDataConfig(BaseModel):
    """The images to train on, in three splits.

    A published test split is kept; otherwise a tenth of the images is for selection and a tenth for
    the test, chosen by their content, so that equal images are in the same split.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: Annotated[
        Literal["digits", "cifar10", "parquet", "folder"], BeforeValidator(_refuse_unread)
    ] = Field(
        "digits",
        description="digits: 1,797 images of 8x8 pixels that scikit-learn contains; cifar10: a"
        " folder with the published binary files (data_batch_1.bin, …, test_batch.bin); parquet;"
        " folder: `<class>/<image>`, or train/, val/ (or validation/, dev/) and test/ with them",
    )
    path: Images = Field(
        default_factory=list,
        description="cifar10, folder: the folder; parquet: a file, a glob, or a list of them",
    )
    test_path: Images = Field(
        default_factory=list, description="parquet: files of the test split, if it is published"
    )
    selection_path: Images = Field(
        default_factory=list,
        description="parquet: files of the selection (validation) split, if it is published",
    )
    image_column: str = Field(
        "image",
        description="parquet: column of encoded images (bytes, or a struct with bytes) or of nested"
        " lists of pixels, [height][width] or [height][width][channels], 0 to 255",
    )
    label_column: str = Field("label", description="parquet: column of whole numbers or texts")
    size: int | None = Field(
        None,
        gt=0,
        description="height and width to which images are resized and cropped, in pixels; null:"
        " they all have the same size",
    )
    channels: Literal[1, 3] | None = Field(
        None,
        description="1 (grey) or 3 (red, green, blue): images are converted to it; null: they all"
        " have the same number",
    )
    on_bad_data: OnBadData = Field(
        "fail",
        description="reaction to an image, row or row group that cannot be read; skip lists them in"
        " the log and in the cache's meta.json",
    )
    loader_workers: int = Field(
        2,
        gt=0,
        description="threads that decode images, which happens once: all trials share the pixels",
    )

    @model_validator(mode="after")
    def _paths_belong_to_files(self) -> ImageDataConfig:
        if self.source == "digits" and self.path:
            raise ValueError("path has no effect with source: digits, which scikit-learn contains")
        if self.source != "digits" and not self.path:
            raise ValueError(f"source '{self.source}' needs a path")
        if self.source in ("cifar10", "folder") and len(self.path) > 1:
            raise ValueError(f"source '{self.source}' has one path, got {len(self.path)}")
        if (self.test_path or self.selection_path) and self.source != "parquet":
            raise ValueError("test_path and selection_path are of source: parquet")
        return self

    @property
    def all_paths(self) -> list[str]:
        """Paths of all splits."""
        return self.path + self.selection_path + self.test_path

    @classmethod
    def resolve_paths(cls, config: dict[str, Any], folder: Path) -> dict[str, Any]:
        """A configuration with relative paths made absolute."""
        return paths_in(config, folder, ("path", "selection_path", "test_path"))
