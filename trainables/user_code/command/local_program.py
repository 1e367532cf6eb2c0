"""The program of a trial on this machine: what it reported, and what it is told."""

from __future__ import annotations

import re
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError, suggest
from search_spaces.nested import show
from trainables.job import Answer
from trainables.runtime.preemption import preemption_requested
from trainables.user_code.command.event_files import EventFiles
from trainables.user_code.command.program import Program
from trainables.user_code.command.reports import (
    CHECKPOINT,
    STEP,
    JsonLines,
    OutputPatterns,
    ProgramReport,
    ReportJoiner,
)
from trainables.worker import Worker

_OWN_NAME = ".folder_name"
"""File of a checkpoint with the name that the program gave its folder."""
_NO_FILE = re.compile("FileNotFoundError|No such file or directory")
_POLL_S, _POLL_TOGETHER_S = 0.02, 0.1
StepReport = tuple[int, dict[str, float], str | None]
"""Step, metrics and the folder of a checkpoint."""


@dataclass(frozen=True)
class ProgramState:
    """What a rank knows at one moment; ranks exchange it.

    Attributes:
        report: the next one of the program, with its step and its checkpoint's folder.
        running: whether its program runs, or said something that is not reported yet.
        alive: whether its program wrote anything.
        failure: why its program failed.
        preempted: whether this process was asked to leave.
    """

    report: StepReport | None = None
    running: bool = False
    alive: bool = False
    failure: str | None = None
    preempted: bool = field(default_factory=preemption_requested)


def link_by_name(checkpoint: Path, temporary: Path) -> Path:
    """A link to a checkpoint that has the name that the program gave it, alone in its folder.

    Libraries find their checkpoints by name (`checkpoint-500`, `epoch_2`), and read the place of
    the training from it.
    """
    name = checkpoint / _OWN_NAME
    if not name.is_file():  # of an older version
        return checkpoint
    link = temporary / "checkpoint" / name.read_text(encoding="utf-8")
    link.parent.mkdir()
    link.symlink_to(checkpoint.absolute())
    return link


class NoProgram:
    """A rank whose machine runs the program in another rank."""

    def poll(self) -> ProgramState:
        """Wait a moment for output or reports."""
        return ProgramState()

    def take(self, folder: str) -> Callable[[Path], None]:
        """What moves the files of a reported checkpoint to the folder in which it is saved."""
        return lambda target: None

    def answer(self, answer: Answer) -> None:
        """Tell the program, if it waits; delete its checkpoint if that was not saved."""

    def stop(self, last: int, *, at_once: bool) -> StepReport | None:
        """End the program; returns the last checkpoint that it reports until then.

        Args:
            last: step of its last report.
            at_once: whether it gets SIGTERM now, not only if it does not end by itself.
        """
        return None

    def advice(self) -> str:
        """How to report, or the pattern that found nothing."""
        return ""

    def close(self) -> None:
        """Kill what is left of the program."""


class LocalProgram(NoProgram):
    """The program of this machine; that of the first machine reports.

    Args:
        worker: the rank that runs it.
        argv, env: of the program.
        temporary: folder of this attempt on this machine.
        begin: step of the checkpoint from which it resumes; None for a fresh start.
    """

    def __init__(
        self,
        worker: Worker,
        argv: Sequence[str],
        env: dict[str, str],
        temporary: Path,
        begin: int | None,
    ) -> None:
        job = self._job = worker.job
        self._joiner, self._reports = ReportJoiner(job, begin), worker.rank == 0
        self._poll_s = _POLL_S if worker.world_size == 1 else _POLL_TOGETHER_S
        self._answers, self._pending = temporary / "answers", deque[ProgramReport]()
        self._current, self._checkpoint = ProgramReport(), ""
        self._work = job.paths.work.resolve()
        self._patterns = OutputPatterns(job.report_from.stdout)
        self._files: list[JsonLines | EventFiles] = [
            JsonLines(temporary / "reports.jsonl", "$TUNE_REPORTS", answered=True)
        ]
        if name := job.report_from.jsonl:
            self._files.append(JsonLines(self._work / name, name))
        if folder := job.report_from.tensorboard:
            self._files.append(EventFiles(self._work / folder, job.retention.metric))
        self._program = Program(argv, self._work, env)

    def poll(self) -> ProgramState:
        """Take the next report, or wait a moment; see the base class."""
        alive = self._collect(0.0 if self._pending else self._poll_s)
        if self._pending:
            self._current = self._pending.popleft()
            return ProgramState(self._parse(self._current), running=True, alive=True)
        running = self._program.exit_code is None
        return ProgramState(None, running, alive, self._failure())

    def take(self, folder: str) -> Callable[[Path], None]:
        """Move what lies below the working directory, copy anything else; see the base class."""
        source = Path(folder)

        def move(target: Path) -> None:
            for path in sorted(source.iterdir()):
                if source.is_relative_to(self._work):
                    shutil.move(path, target / path.name)
                elif path.is_dir():
                    shutil.copytree(path, target / path.name, dirs_exist_ok=True)
                else:
                    shutil.copyfile(path, target / path.name)
            (target / _OWN_NAME).write_text(source.name, encoding="utf-8")

        return move if self._reports else super().take(folder)

    def answer(self, answer: Answer) -> None:
        """Write the answer to the file that the program reads; see the base class."""
        if self._checkpoint and Path(self._checkpoint).is_relative_to(self._work):
            shutil.rmtree(self._checkpoint, ignore_errors=True)
        if self._current.answer_to is not None:
            with open(self._answers, "a", encoding="utf-8") as file:
                file.write(f"{self._current.answer_to} {answer.value}\n")
        self._current = ProgramReport()

    def stop(self, last: int, *, at_once: bool) -> StepReport | None:
        """SIGTERM, a time of grace, and SIGKILL; see the base class."""
        grace = self._job.stop_grace_s
        if at_once or not self._program.wait(grace):
            self._program.terminate()
            self._program.wait(grace)
        self._program.close()
        self._collect(0.0)
        # with metrics it is of a later step, which is computed again: its report does not count
        saved = [r for r in self._pending if r.values.keys() - {STEP} == {CHECKPOINT}]
        if not saved:
            return None
        step, _, folder = self._parse(saved[-1])
        return max(last, step), {}, folder

    def advice(self) -> str:
        """See the base class."""
        if said := self._joiner.advice():
            return said
        if missing := self._patterns.missing:
            return f": nothing matched report_from.stdout.{missing[0]}"
        if folder := self._job.report_from.tensorboard:
            metric = self._job.retention.metric
            tags = {
                tag for file in self._files if isinstance(file, EventFiles) for tag in file.tags
            }
            return f": no event file in {folder} has a scalar '{metric}'{suggest(metric, tags)}"
        return ": it wrote nothing to the file $TUNE_REPORTS, and report_from names no other source"

    def close(self) -> None:
        """See the base class."""
        self._program.close()

    def _collect(self, timeout: float) -> bool:
        """Queue what the program reports; whether it wrote anything."""
        alive = False
        for fd, line in self._program.lines(timeout):
            alive = True
            if self._reports:
                self._pending += self._patterns.feed(line, strict=fd == 1)
        for file in self._files if self._reports else ():
            new = list(file.new(ended=self._program.exit_code is not None))
            alive = alive or bool(new)
            self._pending += new
        return alive

    def _failure(self) -> str | None:
        failure = self._program.failure()
        if failure is None or self._job.cwd == "project" or not _NO_FILE.search(failure):
            return failure
        advice = "give its path as an argument or under fixed, or set cwd: project"
        return f"{failure} (the working directory is {self._work}; {advice})"

    def _parse(self, report: ProgramReport) -> StepReport:
        step, metrics = self._joiner.take(report.values)
        self._checkpoint = self._folder(report.values.get(CHECKPOINT))
        return step, metrics, self._checkpoint or None

    def _folder(self, given: Any) -> str:
        """The folder of a reported checkpoint; empty for none."""
        if given is None:
            return ""
        folder = (self._work / given).resolve() if isinstance(given, str) else None
        if folder is None or not folder.is_dir() or self._work.is_relative_to(folder):
            raise UserError(f"the program reported a checkpoint that is no folder: {show(given)}")
        return str(folder)
