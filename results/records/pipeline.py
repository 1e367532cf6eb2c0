"""The folder of a pipeline: its frozen file, `stages.json`, and the folders of its stages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from results.paths import Storage, SweepPaths
from results.storage.atomic import write_atomic
from search_spaces.checksum import add_json_checksum, json_is_intact
from search_spaces.errors import DamagedRecordsError
from search_spaces.files import parse_json, read_regular


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
    """Every pipeline in a storage, by name."""
    folders = sorted(storage.root.iterdir()) if storage.root.is_dir() else []
    yield from (found for folder in folders if (found := PipelinePaths(folder)).is_pipeline)


@dataclass(frozen=True)
class StageRecord:
    """What is known of a stage that has begun.

    Attributes:
        key: digest of its configuration, its code and the keys of the stages that it needs.
        began: Unix seconds.
        seconds: wall-clock of all its sessions that have ended.
        done: whether it is complete.
        result: what it put out, in words and numbers.
    """

    key: str
    began: float
    seconds: float = 0.0
    done: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)


def stage_state(record: StageRecord | None, *, driven: bool) -> str:
    """`to run`, `complete`, `running` or `interrupted`.

    Args:
        record: None if the stage has not begun.
        driven: whether a driver runs the pipeline now.
    """
    if record is None:
        return "to run"
    if record.done:
        return "complete"
    return "running" if driven else "interrupted"


@dataclass(frozen=True)
class StageRecords:
    """The content of `stages.json`.

    Attributes:
        stages: the newest record of each stage, by name.
        earlier: records of stages as they were before a change, by folder name.
        signed: signatures for the present `pipeline.yaml` and the one before.
        identity: of the pipeline, also after its folder was moved or renamed.
        places: folders in which it ran; its sweeps name files there.
    """

    stages: Mapping[str, StageRecord] = field(default_factory=dict)
    earlier: Mapping[str, StageRecord] = field(default_factory=dict)
    signed: tuple[str, ...] = ()
    identity: str = ""
    places: tuple[str, ...] = ()


def read_stages(paths: PipelinePaths) -> StageRecords:
    """Read `stages.json`; without the file no stage has begun.

    Raises:
        DamagedRecordsError: it is not readable.
    """
    try:
        data = read_regular(paths.records)
        if not json_is_intact(data):
            raise ValueError("does not match its checksum")
        raw = parse_json(data)
        signed = tuple(map(str, raw.get("signed", ())))
        records = (_records(raw["stages"]), _records(raw["earlier"]))
        places = tuple(map(str, raw.get("places", ())))
        return StageRecords(*records, signed, raw.get("identity", ""), places)
    except FileNotFoundError:
        return StageRecords()
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise DamagedRecordsError(
            f"{paths.records}: not readable ({e}); without the file all stages run again"
        ) from e


def original_of(paths: PipelinePaths) -> Path | None:
    """The folder of which a pipeline's is a copy; None if it is none, or it was moved."""
    records = read_stages(paths)
    for place in map(Path, records.places):
        there = place.is_dir() and not paths.root.samefile(place)
        if there and read_stages(PipelinePaths(place)).identity == records.identity:
            return place
    return None


def write_stages(paths: PipelinePaths, records: StageRecords) -> None:
    """Write `stages.json` atomically."""
    text = json.dumps(asdict(records), indent=1)
    write_atomic(paths.records, add_json_checksum(text).encode())


def _records(raw: Mapping[str, Any]) -> dict[str, StageRecord]:
    return {name: StageRecord(**record) for name, record in raw.items()}
