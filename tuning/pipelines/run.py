"""Runs the stages of a pipeline in order; a stage whose key is recorded complete is not run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from results.paths import SweepPaths
from results.records.pipeline import (
    PipelinePaths,
    StageRecord,
    StageRecords,
    read_stages,
    write_stages,
)
from results.storage.atomic import write_atomic
from results.storage.probe import check_storage
from search_spaces.checksum import add_yaml_checksum
from search_spaces.errors import UserError, suggest
from search_spaces.pipeline.graph import dependencies
from search_spaces.pipeline.loading import LoadedPipeline, freeze, load_pipeline
from tuning.controller.ray_tune.cluster import check_cluster_auth
from tuning.controller.ray_tune.prepared import shared_cluster
from tuning.controller.sweep_dir.folder import resolve_storage
from tuning.controller.sweep_dir.lock import acquire_lock
from tuning.controller.sweep_dir.trust import Trust
from tuning.pipelines.base import Drive, Say, Surroundings, run_stage
from tuning.pipelines.check import check_pipeline
from tuning.pipelines.folder import require_own, sign_pipeline
from tuning.pipelines.keys import stage_keys


@dataclass(frozen=True)
class Chosen:
    """The stages to run, by name; without any of the three all.

    Attributes:
        stages: only these.
        begin, until: only those from one to another, in the order in which they run.
    """

    stages: Sequence[str] = ()
    begin: str | None = None
    until: str | None = None

    def among(self, names: Sequence[str]) -> list[str]:
        """The chosen ones of all stages.

        Raises:
            UserError: there is no such stage.
        """
        options = {"--begin": self.begin, "--until": self.until}
        given = [("--stages", name) for name in self.stages]
        for option, name in (*given, *((o, n) for o, n in options.items() if n)):
            if name not in names:
                raise UserError(f"{option} {name}: no such stage{suggest(name, names)}")
        first = names.index(self.begin) if self.begin else 0
        last = names.index(self.until) if self.until else len(names) - 1
        return [n for n in names[first : last + 1] if not self.stages or n in self.stages]


ALL = Chosen()
_WITH_FOLDER = ("data", "train", "evaluate", "command")
"""Kinds of stages with a folder of their own; the others write into that of a train stage."""


def run_pipeline(
    file: str | Path,
    *,
    overrides: Sequence[str] = (),
    name: str | None = None,
    storage: str | None = None,
    address: str | None = None,
    insecure: bool = False,
    chosen: Chosen = ALL,
    drive: Drive = lambda session: session(),
    say: Say = lambda line: None,
) -> PipelinePaths:
    """Run a pipeline's stages that have not been run with these keys; the others are kept.

    Args:
        file: of the pipeline.
        overrides: `stage.key=value` texts.
        name: of the pipeline's folder; default: the file's.
        storage: folder that holds it; default: `$TUNE_STORAGE` or ./sweeps.
        address, insecure: see `tuning.api.run`.
        chosen: the stages to run.
        drive, say: see `Surroundings`.

    Raises:
        UserError: a mistake in the file, or a stage cannot be run.
        StageStopped: a stage was interrupted, or has no result; `resume_pipeline` goes on.
    """
    pipeline = load_pipeline(Path(file), overrides)
    paths = PipelinePaths(resolve_storage(storage).root / (name or pipeline.name))
    check_cluster_auth(address, insecure)
    check_pipeline(pipeline)
    if Path(paths.name).name != (name or paths.name):
        raise UserError(f"--name: must be a plain name, got '{name}'")
    if SweepPaths(paths.root).is_sweep:
        raise UserError(f"{paths.root} is a sweep; choose another name (--name)")
    check_storage(paths.root.parent)
    paths.root.mkdir(parents=True, exist_ok=True)
    with acquire_lock(paths.lock):
        text = add_yaml_checksum(freeze(pipeline)).encode()
        sign_pipeline(paths, text)
        write_atomic(paths.spec, text)
        _Run(pipeline, paths, address, drive, say).run(chosen)
    return paths


def resume_pipeline(
    paths: PipelinePaths,
    *,
    trust: Trust = False,
    address: str | None = None,
    insecure: bool = False,
    chosen: Chosen = ALL,
    drive: Drive = lambda session: session(),
    say: Say = lambda line: None,
) -> PipelinePaths:
    """Go on with a pipeline, as it was started last: in the stage that was interrupted.

    Args:
        paths: its folder.
        trust: resume a pipeline that another user made; or a function that is asked.
        address, insecure, chosen, drive, say: see `run_pipeline`.

    Raises:
        UserError, StageStopped: see `run_pipeline`.
    """
    require_own(paths, trust)
    return run_pipeline(
        paths.spec,
        name=paths.name,
        storage=str(paths.root.parent),
        address=address,
        insecure=insecure,
        chosen=chosen,
        drive=drive,
        say=say,
    )


@dataclass
class _Run:
    pipeline: LoadedPipeline
    paths: PipelinePaths
    address: str | None
    drive: Drive
    say: Say
    records: StageRecords = field(init=False)

    def run(self, chosen: Chosen) -> None:
        keys, names = stage_keys(self.pipeline), self.pipeline.order
        wanted = chosen.among(names)
        self.records = read_stages(self.paths)
        self.paths.stages.root.mkdir(exist_ok=True)
        with shared_cluster() if self.address is None else nullcontext():
            for name in wanted:
                if not self._is_done(name, keys[name]):
                    self._require(name, keys)
                    self._run_stage(name, keys[name])
                else:
                    self.say(f"stage {name}: complete")

    def _is_done(self, name: str, key: str) -> bool:
        """Whether the stage is complete; one that was so before a change is taken back."""
        record = self.records.stages.get(name)
        if record is not None and record.key == key:
            return record.done and self._has_folder(name)
        self._set_aside(name)
        earlier = self.paths.earlier(name, key)
        if (old := self.records.earlier.get(earlier.name)) is None:
            return False
        if earlier.exists():
            earlier.rename(self.paths.stage(name))
        self._save(name, old)
        return old.done and self._has_folder(name)

    def _has_folder(self, name: str) -> bool:
        """Whether what the stage put out is still there, if it has a folder of its own."""
        own = self.pipeline.stages[name].kind in _WITH_FOLDER
        return self.paths.stage(name).is_dir() or not own

    def _set_aside(self, name: str) -> None:
        """Keep the folder of a stage that has changed, under the name of its old key."""
        record = self.records.stages.get(name)
        if record is None:
            return
        folder, target = self.paths.stage(name), self.paths.earlier(name, record.key)
        if folder.exists() and not target.exists():
            folder.rename(target)
        earlier = {**self.records.earlier, target.name: record}
        stages = {n: r for n, r in self.records.stages.items() if n != name}
        self.records = replace(self.records, stages=stages, earlier=earlier)
        write_stages(self.paths, self.records)

    def _require(self, name: str, keys: dict[str, str]) -> None:
        for other in dependencies(name, self.pipeline.stages):
            record = self.records.stages.get(other)
            if record is None or record.key != keys[other] or not record.done:
                state = "has changed" if record and record.done else "is not complete"
                also = f"--stages {other},{name}"
                raise UserError(f"stage {name} needs {other}, which {state}; run it too: {also}")

    def _run_stage(self, name: str, key: str) -> None:
        before, folder = self.records.stages.get(name), self.paths.stage(name)
        if before is None or before.done:  # done, and its folder was removed
            before = None
            if folder.exists():  # its key is unknown: the records were removed
                folder.rename(self.paths.earlier(name, f"{time.time():.0f}"))
        record = before or StageRecord(key, time.time())
        self._save(name, record)
        self.say(f"stage {name}: {'resumed' if before else self.pipeline.stages[name].kind}")
        results = {n: r.result for n, r in self.records.stages.items()}
        around = Surroundings(
            self.pipeline, self.paths, results, self.address, self.drive, self.say
        )
        start, result, done = time.monotonic(), record.result, False
        try:
            result, done = run_stage(self.pipeline.stages[name], around), True
        finally:
            seconds = record.seconds + time.monotonic() - start
            self._save(name, replace(record, seconds=seconds, done=done, result=result))

    def _save(self, name: str, record: StageRecord) -> None:
        stages = {**self.records.stages, name: record}
        self.records = replace(self.records, stages=stages)
        write_stages(self.paths, self.records)
