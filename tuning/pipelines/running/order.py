"""The order in which stages run: each when those that it needs are complete, several if they fit.

A stage that is the only one to run does so in this process. Others run in processes of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from results.records.pipeline import PipelinePaths
from search_spaces.errors import UserError
from search_spaces.pipeline.graph import dependencies
from search_spaces.pipeline.loading import LoadedPipeline
from search_spaces.pipeline.stages import TrainStage
from tuning.cluster.warm_cluster import keep_workers_for, release_workers, shared_address
from tuning.pipelines.base import Drive, Say, StageStopped, Surroundings, run_stage
from tuning.pipelines.control import Commands
from tuning.pipelines.running.process import StageProcess
from tuning.pipelines.running.room import Room
from tuning.pipelines.running.table import StageTable

_POLL_S = 0.1


class StageOrder:
    """Runs stages of a pipeline.

    Args:
        pipeline, paths: the pipeline and its folder.
        table: records of the stages.
        address, drive, say: see `Surroundings`.
        apart: see `StageProcess`; empty: stages run one after the other.
    """

    def __init__(
        self,
        pipeline: LoadedPipeline,
        paths: PipelinePaths,
        table: StageTable,
        address: str | None,
        drive: Drive,
        say: Say,
        apart: Sequence[str],
    ) -> None:
        self._pipeline, self._paths, self._table = pipeline, paths, table
        self._address, self._drive, self._say, self._apart = address, drive, say, apart
        self._room = Room(pipeline, paths, address)
        self._waiting: list[str] = []
        self._ready: list[str] = []
        self._running: dict[str, StageProcess] = {}
        self._ended = threading.Event()  # a process of a stage
        self._commands = Commands(paths)

    def run(self, names: Sequence[str]) -> None:
        """Run the stages that are not complete.

        Raises:
            UserError: a stage cannot be run, or needs another one that is not complete.
            StageStopped: a stage was interrupted, or has no result.
        """
        self._waiting, self._ready = list(names), []
        with self._commands, self._ended_processes():
            while self._find_ready() or self._running:
                if self._commands.stopped and not self._running:
                    raise StageStopped("stopped by tune stop", 130)
                if not self._collect() and not self._begin():
                    self._ended.wait()
                    self._ended.clear()

    def _find_ready(self) -> list[str]:
        """The stages that can begin now, in order; those that are complete are passed."""
        while names := self._without_open_needs():
            for name in names:
                self._waiting.remove(name)
                if self._table.is_done(name):
                    self._say(f"stage {name}: complete")
                else:
                    self._table.require(name)
                    self._ready.append(name)
        self._ready.sort(key=self._pipeline.order.index)
        return self._ready

    def _without_open_needs(self) -> list[str]:
        """Of the stages that wait, those that need none that is still to run."""
        busy = {*self._waiting, *self._ready, *self._running}
        needs = {name: dependencies(name, self._pipeline.stages) for name in self._waiting}
        return [name for name in self._waiting if busy.isdisjoint(needs[name])]

    def _begin(self) -> bool:
        """Begin a stage, if one can run now beside those that do."""
        if self._commands.stopped or not self._ready:
            return False
        if self._running:
            names = [name for name in self._ready if self._room.fits(name, self._running)]
        else:
            names, first = self._ready[:1], self._ready[0]
            beside = (self._room.fits(other, [first]) for other in self._ready[1:])
            if not self._apart or not any(beside):
                self._run_here(first)
                return True
        if names:
            self._run_apart(names[0])
        return bool(names)

    def _run_here(self, name: str) -> None:
        self._ready.remove(name)
        self._announce(name)
        later = (self._pipeline.sweeps.get(n) for n in self._waiting)
        keep_workers_for(next((sweep.spec for sweep in later if sweep), None))
        around = Surroundings(
            self._pipeline, self._paths, self._table.results, self._address, self._drive, self._say
        )
        start, result = time.monotonic(), None
        try:
            with self._commands.during(name):
                result = run_stage(self._pipeline.stages[name], around)
        finally:
            self._table.end(name, time.monotonic() - start, result)

    def _run_apart(self, name: str) -> None:
        """Start a stage in a process; a sweep has its folder, with its budget, when this returns.

        Stages write the models with which they begin into the folders of earlier ones: one by one.
        """
        self._ready.remove(name)
        self._announce(name)
        is_train = isinstance(self._pipeline.stages[name], TrainStage)
        if is_train:
            release_workers()  # they hold what its own will need
        address = shared_address(self._address) if is_train else self._address
        self._running[name] = StageProcess(
            self._apart, self._paths, name, address, self._say, self._ended.set
        )
        self._commands.add(name)
        sweep = self._paths.sweep(name)
        while is_train and not sweep.is_sweep and self._running[name].is_alive:
            time.sleep(_POLL_S)

    def _announce(self, name: str) -> None:
        resumed = self._table.begin(name)
        self._say(f"stage {name}: {'resumed' if resumed else self._pipeline.stages[name].kind}")

    def _collect(self) -> bool:
        """Record the stages whose processes have ended; whether there are any.

        Raises:
            UserError, StageStopped: one has no result.
        """
        ended = [name for name, process in self._running.items() if not process.is_alive]
        problems = [e for name in ended if (e := self._take(name)) is not None]
        if problems:
            raise problems[0]
        return bool(ended)

    def _take(self, name: str) -> UserError | StageStopped | None:
        process = self._running.pop(name)
        self._commands.remove(name)
        result, problem = process.outcome()
        self._table.end(name, process.seconds, result)
        if result is not None:
            self._say(f"stage {name}: ended")
        return problem

    @contextmanager
    def _ended_processes(self) -> Iterator[None]:
        """If the block fails, end the stages that still run, and record them."""
        try:
            yield
        finally:
            for process in self._running.values():
                process.terminate()
            for name in [*self._running]:
                self._running[name].wait()
                self._take(name)
