"""What is known of each stage: which are complete under their keys, and which have changed."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from pathlib import Path

from results.models.stages import StageRecord, StageRecords, read_stages, write_stages
from results.paths import Storage
from results.records.pipeline import PipelinePaths
from results.records.record_log import remove_logged
from search_spaces.errors import UserError
from search_spaces.pipeline.graph import dependencies
from search_spaces.pipeline.stages import AverageStage, ConfirmStage
from tuning.pipelines.base import CONFIRMS, StageContext, StageOutput
from tuning.pipelines.keys import stage_keys
from tuning.pipelines.models import init_models

_WITH_FOLDER = ("data", "train", "evaluate", "command")
"""Kinds of stages with a folder of their own; the others write into that of a train stage."""


class StageTable:
    """The records of a pipeline's stages, on disk when a method returns; the caller owns its lock.

    Attributes:
        records: of all stages, by name.
    """

    def __init__(self, context: StageContext) -> None:
        self._context, self._pipeline, self._paths = context, context.pipeline, context.paths
        self._keys = stage_keys(self._pipeline, Storage(self._paths.root.parent).cache)
        self.records = read_stages(self._paths)
        if context.is_resumed:
            self._keep_begun()
        # confirmations of stages that the file has no longer decide no winner
        for name, record in self.records.stages.items():
            if name not in self._pipeline.stages and CONFIRMS in record.result:
                sweep = self._paths.sweep(record.result[CONFIRMS])
                remove_logged(sweep, sweep.confirmation)
                self._set_aside(name)

    def _keep_begun(self) -> None:
        """Give stages that have begun the keys that they have now; those below them follow."""
        begun = {n: r for n, r in self.records.stages.items() if n in self._keys}
        changed = [name for name, record in begun.items() if record.key != self._keys[name]]
        if changed:
            self._context.notify(
                f"kept as they have begun: {', '.join(changed)}; their code, or data that they "
                "read, have changed since; tune run FILE runs them again"
            )
        for name in changed:
            self._save(name, replace(begun[name], key=self._keys[name]))

    def is_done(self, name: str) -> bool:
        """Whether the stage is complete; one that was so before a change is taken back."""
        record, key = self.records.stages.get(name), self._keys[name]
        if record is not None and record.key == key:
            return record.done and self._has_folder(name)
        self._set_aside(name)
        earlier = self._paths.earlier(name, key)
        if (old := self.records.earlier.get(earlier.name)) is None:
            return False
        if earlier.exists():
            earlier.rename(self._paths.stage(name))
        self._save(name, old)
        return old.done and self._has_folder(name)

    def _has_folder(self, name: str) -> bool:
        """Whether what the stage put out is still there, if it has files of its own."""
        stage = self._pipeline.stages[name]
        if isinstance(stage, ConfirmStage):
            return self._paths.sweep(stage.of).confirmation.is_file()
        if isinstance(stage, AverageStage):
            return self._paths.sweep(stage.of).soup(name).is_dir()
        return self._paths.stage(name).is_dir() or stage.kind not in _WITH_FOLDER

    def _set_aside(self, name: str) -> None:
        """Keep the folder of a stage that has changed, under the name of its old key."""
        record = self.records.stages.get(name)
        if record is None:
            return
        folder, target = self._paths.stage(name), self._paths.earlier(name, record.key)
        if folder.exists() and not target.exists():
            folder.rename(target)
        earlier = {**self.records.earlier, target.name: record}
        stages = {n: r for n, r in self.records.stages.items() if n != name}
        self._write(replace(self.records, stages=stages, earlier=earlier))

    def require(self, name: str) -> None:
        """Pass if the stages that a stage needs are complete, and where they ran.

        Raises:
            UserError: one is not, or the folder was moved.
        """
        self._require_places()
        for other in dependencies(name, self._pipeline.stages):
            record = self.records.stages.get(other)
            if record is None or record.key != self._keys[other] or not record.done:
                state = "has changed" if record and record.done else "is not complete"
                also = f"--stages {other},{name}"
                raise UserError(f"stage {name} needs {other}, which {state}; run it too: {also}")

    def _require_places(self) -> None:
        """Pass if the files that sweeps name are found: models and data of other stages."""
        if not self.records.stages.keys() & self._pipeline.sweeps.keys():
            return  # no sweep has begun
        root, own = self._paths.root.absolute(), self.records.identity
        for place in map(Path, self.records.places):
            if read_stages(PipelinePaths(place)).identity != own:
                parent, *both = map(shlex.quote, map(str, (place.parent, root, place)))
                raise UserError(
                    f"{root}: was moved from {place}, where its sweeps look for files; move it "
                    f"back, or make a link: mkdir -p {parent} && ln -s {' '.join(both)}"
                )

    def begin(self, name: str) -> bool:
        """Record that a stage runs, and the models with which its sweep begins.

        Returns:
            Whether it goes on with what it has begun.

        Raises:
            UserError: there are no such models.
        """
        before, folder = self.records.stages.get(name), self._paths.stage(name)
        places = dict.fromkeys((*self.records.places, str(self._paths.root.absolute())))
        self.records = replace(self.records, places=tuple(places))
        if before is None or before.done:  # done, and its folder was removed
            before = None
            if folder.exists():  # its key is unknown: the records were removed
                folder.rename(self._paths.earlier(name, f"{time.time():.0f}"))
        if self._pipeline.stages[name].kind not in _WITH_FOLDER:
            self._forget_replaced(name)
        record = before or StageRecord(self._keys[name], time.time())
        if name in self._pipeline.sweeps and not self._paths.sweep(name).is_sweep:
            inputs = init_models(self._pipeline.stages[name], self._context, self.records)
            record = replace(record, inputs=inputs)
        self._save(name, record)
        return before is not None

    def _forget_replaced(self, name: str) -> None:
        """Forget what a stage put out before, in the train stage's folder: it is replaced now."""
        stages, paths = self.records.stages, self._paths
        others = dependencies(name, self._pipeline.stages) & stages.keys()
        since = min((stages[other].began for other in others), default=0.0)
        earlier = {
            n: r
            for n, r in self.records.earlier.items()
            if r.began < since or n != paths.earlier(name, r.key).name
        }
        self.records = replace(self.records, earlier=earlier)

    def end(self, name: str, seconds: float, output: StageOutput | None) -> None:
        """Record the end of a stage's session.

        Args:
            seconds: of it.
            output: what the stage put out; None: it is not complete.
        """
        record = self.records.stages[name]
        record = replace(record, seconds=record.seconds + seconds)
        if output is not None:
            record = replace(record, done=True, result=output.result, models=output.models)
        self._save(name, record)

    def _save(self, name: str, record: StageRecord) -> None:
        stages = {**self.records.stages, name: record}
        self._write(replace(self.records, stages=stages))

    def _write(self, records: StageRecords) -> None:
        self._context.fence.check()
        self.records = records
        write_stages(self._paths, records)
