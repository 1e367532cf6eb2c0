"""`stages.json`: what is known of each stage of a pipeline, and the models that it put out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic.dataclasses import dataclass as checked_dataclass

from results.models.ref import ModelRef, model_refs
from results.records.pipeline import PipelinePaths
from results.storage.atomic import write_atomic
from results.sweep_folder.folder import Seconds
from search_spaces.checksum import add_json_checksum, json_is_intact
from search_spaces.errors import DamagedRecordsError, short_reason
from search_spaces.files import parse_json, read_regular


@checked_dataclass(frozen=True, config={"extra": "forbid"})
class StageRecord:
    """What is known of a stage that has begun.

    Attributes:
        key: digest of its configuration, its code and the keys of the stages that it needs.
        began: Unix seconds.
        seconds: wall-clock of all its sessions that have ended.
        done: whether it is complete.
        result: what it put out, in words and numbers.
        inputs: the models with which its trials begin, best first.
        models: those that it put out.
    """

    key: str
    began: Seconds
    seconds: Seconds = 0.0
    done: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)
    inputs: tuple[ModelRef, ...] = ()
    models: tuple[ModelRef, ...] = ()


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
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise DamagedRecordsError(
            f"{paths.records}: not readable ({short_reason(e)}); without the file all stages run "
            "again"
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
    return {name: _record(dict(one)) for name, one in raw.items()}


def _record(raw: dict[str, Any]) -> StageRecord:
    """A record; one of the version before names the average that it made in its result only."""
    for key in ("inputs", "models"):
        raw[key] = model_refs(raw.get(key, ()))
    if not raw["models"] and "soup" in raw.get("result", {}):
        raw["models"] = (ModelRef("soup", "", raw["result"]["soup"]),)
    return StageRecord(**raw)
