"""The folder of a pipeline: its frozen file, and the folders of its stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from results.paths import Storage, SweepPaths


@dataclass(frozen=True)
class PipelinePaths:
    """The files of one pipeline: `<storage>/<pipeline>/`."""

    root: Path

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.root.name

    @property
    def spec(self) -> Path:
        """`pipeline.yaml`: the pipeline as it was started last."""
        return self.root / "pipeline.yaml"

    @property
    def records(self) -> Path:
        """`stages.json`."""
        return self.root / "stages.json"

    @property
    def lock(self) -> Path:
        """`owner.lock`: the driver that runs the pipeline now."""
        return self.root / "owner.lock"

    @property
    def log(self) -> Path:
        """`driver.log`: output of detached sessions."""
        return self.root / "driver.log"

    @property
    def report(self) -> Path:
        """`report.html`, the default path of the report."""
        return self.root / "report.html"

    @property
    def stages(self) -> Storage:
        """The folder of the stages, a storage of sweeps."""
        return Storage(self.root / "stages")

    @property
    def is_pipeline(self) -> bool:
        """Whether the folder is that of a pipeline."""
        return self.spec.is_file()

    def stage(self, name: str) -> Path:
        """The folder of a stage."""
        return self.stages.root / name

    def sweep(self, name: str) -> SweepPaths:
        """The sweep of a train stage."""
        return self.stages.sweep(name)

    def earlier(self, name: str, key: str) -> Path:
        """The folder of a stage as it was with another key."""
        return self.stages.root / f"{name}@{key[:12]}"


def pipeline_of(folder: Path) -> PipelinePaths | None:
    """The pipeline of which a folder is a stage; None if it is none."""
    found = PipelinePaths(folder.parent.parent)
    return found if found.is_pipeline and folder.parent == found.stages.root else None


def outer_storage(paths: SweepPaths) -> Storage:
    """The storage of a sweep; of a stage, that of its pipeline."""
    pipeline = pipeline_of(paths.root)
    return Storage(pipeline.root.parent) if pipeline else paths.storage


def pipelines_in(storage: Storage) -> Iterator[PipelinePaths]:
    """Every pipeline in a storage, by name; not the links that earlier names of theirs are."""
    folders = sorted(storage.root.iterdir()) if storage.root.is_dir() else []
    own = storage.root.resolve()
    for found in map(PipelinePaths, folders):
        root = found.root  # may be a link to itself, which cannot be resolved
        if found.is_pipeline and not (root.is_symlink() and root.resolve().parent == own):
            yield found
