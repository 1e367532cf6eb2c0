"""The order in which stages run: each when those that it needs are complete, several if they fit.

A stage that is the only one to run does so in this process. Others run in processes of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from search_spaces.errors import UserError
from search_spaces.pipeline.graph import dependencies
from tuning.cluster.warm_cluster import STATE, release_workers, shared_address
from tuning.pipelines.base import StageContext, StageStopped, run_stage
from tuning.pipelines.capacity import CapacityCheck
from tuning.pipelines.control import PipelineCommands
from tuning.pipelines.process import StageProcess
from tuning.pipelines.table import StageTable

_POLL_S = 0.1


class StageOrder:
    """Runs stages of a pipeline; the caller owns its lock.

    Args:
        context: of the stages.
        command: see `StageProcess`; empty: stages run one after the other.
    """

    def __init__(self, context: StageContext, command: Sequence[str]) -> None:
        self._context, self._command, self._table = context, command, StageTable(context)
        self._capacity = CapacityCheck(context)
        self._waiting: list[str] = []
        self._ready: list[str] = []
        self._running: dict[str, StageProcess] = {}
        self._process_ended = threading.Event()
        self._commands = PipelineCommands(context.paths)

    def run(self, names: Sequence[str]) -> None:
        """Run the stages that are not complete.

        Raises:
            UserError: a stage cannot be run, or needs another one that is not complete.
            StageStopped: a stage was interrupted, or has no result.
        """
        self._waiting, self._ready = list(names), []
        with self._commands, self._end_processes():
            while self._find_ready() or self._running:
                if self._commands.stopped and not self._running:
                    raise StageStopped("stopped by tune stop", 130)
                if not self._collect() and not self._begin():
                    self._process_ended.wait()
                    self._process_ended.clear()

    def _find_ready(self) -> list[str]:
        """The stages that can begin now, in order; those that are complete are passed."""
        pipeline = self._context.pipeline
        needs = {name: dependencies(name, pipeline.stages) for name in self._waiting}
        for name in [n for n in pipeline.order if n in needs]:  # those that others need come first
            if not {*self._waiting, *self._ready, *self._running}.isdisjoint(needs[name]):
                continue
            self._waiting.remove(name)
            if self._table.is_done(name):
                self._context.notify(f"stage {name}: complete")
            else:
                self._table.require(name)
                self._ready.append(name)
        self._ready.sort(key=pipeline.order.index)
        return self._ready

    def _begin(self) -> bool:
        """Begin a stage, if one can run now beside those that do."""
        if self._commands.stopped or not self._ready:
            return False
        fits = self._capacity.fits
        if self._running:
            names = [name for name in self._ready if fits(name, self._running)]
        else:
            names, first = self._ready[:1], self._ready[0]
            if not self._command or not any(fits(other, [first]) for other in self._ready[1:]):
                self._run_here(first)
                return True
        if names:
            self._run_in_process(names[0])
        return bool(names)

    def _run_here(self, name: str) -> None:
        self._announce(name)
        pipeline = self._context.pipeline
        later = (pipeline.sweeps.get(n) for n in self._waiting)
        STATE.later = next((sweep.spec for sweep in later if sweep), None)
        start, output = time.monotonic(), None
        try:
            with self._commands.running_stage(name):
                output = run_stage(pipeline.stages[name], self._context)
        finally:
            self._table.end(name, time.monotonic() - start, output)

    def _run_in_process(self, name: str) -> None:
        """Start a stage in a process; a sweep has its folder, with its budget, when this returns.

        Stages write the models with which they begin into the folders of earlier ones: one by one.
        """
        self._announce(name)
        context, is_train = self._context, name in self._context.pipeline.sweeps
        if is_train:
            release_workers()  # they hold what its own will need
            context = replace(context, address=shared_address(context.address))
        process = StageProcess(self._command, context, name, self._process_ended.set)
        self._running[name] = process
        self._commands.running.add(name)
        while is_train and not context.paths.sweep(name).is_sweep and process.is_alive:
            time.sleep(_POLL_S)

    def _announce(self, name: str) -> None:
        self._ready.remove(name)
        resumed, stage = self._table.begin(name), self._context.pipeline.stages[name]
        self._context.notify(f"stage {name}: {'resumed' if resumed else stage.kind}")

    def _collect(self) -> bool:
        """Record the stages whose processes have ended; whether there are any.

        Raises:
            UserError, StageStopped: one has no result.
        """
        ended = [name for name, process in self._running.items() if not process.is_alive]
        problems = [e for name in ended if (e := self._record(name)) is not None]
        if problems:
            raise problems[0]
        return bool(ended)

    def _record(self, name: str) -> UserError | StageStopped | None:
        process = self._running.pop(name)
        self._commands.running.discard(name)
        outcome = process.outcome()
        if isinstance(outcome, Exception):
            self._table.end(name, process.seconds, None)
            return outcome
        self._table.end(name, process.seconds, outcome)
        self._context.notify(f"stage {name}: ended")
        return None

    @contextmanager
    def _end_processes(self) -> Iterator[None]:
        """If the block fails, end the stages that still run, and record them."""
        try:
            yield
        finally:
            for process in self._running.values():
                process.terminate()
            for name in [*self._running]:
                self._running[name].wait()
                self._record(name)
