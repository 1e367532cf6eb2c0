"""Follows a trial's program: reports and checkpoints, the driver's answers, and its end.

The first rank of each machine runs the program there; the others only hold their resources. The
ranks exchange what they know many times a second, so that all of them make the same calls.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from results.checkpoints.commit import Checkpoint
from results.records.reports import Report
from search_spaces.errors import UserError
from trainables.job import Answer
from trainables.runtime.preemption import Preempted, preemption_reason
from trainables.user_code.command.environment import ProgramNode, arguments, environment
from trainables.user_code.command.local_program import (
    LocalProgram,
    NoProgram,
    ProgramState,
    link_by_name,
)
from trainables.user_code.command.program import CommandError
from trainables.user_code.command.project_view import changed_files, make_view
from trainables.user_code.metrics import warn_once
from trainables.user_code.private_folders import temporary_folder
from trainables.worker import Worker


def train(command: Sequence[str], worker: Worker, project: Path | None) -> None:
    """Run a command as one trial, on every rank.

    Args:
        project: folder of which the working directory has a view.

    Raises:
        UserError: the program cannot be started, or reported nothing, or what is no report.
        CommandError: it failed.
        Preempted: a process was asked to leave.
    """
    found = worker.resume()
    node, local_rank = _node(worker)
    work = worker.job.paths.work
    work.mkdir(parents=True, exist_ok=True)
    linked = make_view(project, work.resolve()) if project and worker.rank == 0 else {}
    worker.barrier()
    with temporary_folder() as temporary:
        local = NoProgram()
        if local_rank == 0:
            checkpoint = link_by_name(found.folder, temporary) if found else None
            env = environment(worker.job, node, temporary, checkpoint)
            argv = arguments(command, worker.job, node)
            local = LocalProgram(worker, argv, env, temporary, found.step if found else None)
        try:
            _Follower(worker, local, found).run()
        finally:
            local.close()
            if changed := changed_files(linked):
                text = f"changed {changed[0]}, which is only to be read, or another program did"
                warn_once(worker.job, text)


class _Follower:
    """Follows the programs of a trial, on one rank."""

    def __init__(self, worker: Worker, local: NoProgram, found: Checkpoint | None) -> None:
        self._worker, self._local = worker, local
        self._last = found.step if found else 0
        self._reported = found is not None

    def run(self) -> None:
        """Report what the program reports, until it ends or is to end."""
        running = True
        while running:
            known = exchange(self._worker, self._local.poll())
            self._check(known)
            running = any(each.running for each in known)
            if (report := known[0].report) is not None and not self._report(*report):
                return
        if not self._reported:
            raise UserError(f"the program ended without a report{self._local.advice()}")

    def _check(self, known: Sequence[ProgramState]) -> None:
        """Raise what any rank knows to have failed."""
        if any(each.alive for each in known):
            self._worker.heartbeat()
        if failures := [each.failure for each in known if each.failure]:
            raise CommandError(failures[0])
        if any(each.preempted for each in known):
            self._end(at_once=True)
            raise Preempted(f"{preemption_reason()}; left after step {self._last}")

    def _report(self, step: int, metrics: dict[str, float], folder: str | None) -> bool:
        """Report, and tell the program the answer; False if it is to end, and has ended."""
        if not metrics:
            self._save(step, folder)
            self._local.answer(Answer.CONTINUE)
            return True
        self._last, self._reported = step, True
        save = self._local.take(folder) if folder else None
        try:
            answer = self._worker.report(step=step, metrics=metrics, checkpoint=save, save_now=True)
        except Preempted:
            self._end(at_once=True)
            raise
        self._local.answer(answer)
        if answer is Answer.CONTINUE:
            return True
        job = self._worker.job  # at `max_t` the program may end by itself
        report = Report(step=step, metrics=metrics, attempt=job.attempt, time=0.0)
        is_complete = job.max_t is not None and job.retention.time(report) >= job.max_t
        self._end(at_once=not is_complete)
        return False

    def _end(self, *, at_once: bool) -> None:
        """End the program; the last checkpoint that it reports until then is saved."""
        self._worker.heartbeat()
        stopped = ProgramState(report=self._local.stop(self._last, at_once=at_once))
        last = exchange(self._worker, stopped)[0].report
        if last is not None:
            self._save(last[0], last[2])
        self._worker.saver.drain()

    def _save(self, step: int, folder: str | None) -> None:
        if folder:
            self._worker.saver.begin(step, self._local.take(folder), self._worker.barrier)


def exchange(worker: Worker, known: ProgramState) -> list[ProgramState]:
    """What every rank knows, by rank; the same on all of them."""
    if worker.world_size == 1:
        return [known]
    import torch.distributed as dist

    found: list[Any] = [None] * worker.world_size
    dist.all_gather_object(found, known)
    return found


def _node(worker: Worker) -> tuple[ProgramNode, int]:
    """The machine of this rank in the trial, and the rank's number on that machine."""
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]  # free now
    if worker.world_size == 1:
        return ProgramNode(0, 1, worker.job.workers, "127.0.0.1", port), 0
    import torch.distributed as dist

    places: list[Any] = [None] * worker.world_size
    dist.all_gather_object(places, (socket.gethostname(), port))
    hosts = list(dict.fromkeys(host for host, _ in places))
    mine = [rank for rank, (host, _) in enumerate(places) if host == places[worker.rank][0]]
    # Ray Train and torchrun give their workers the address of rank 0
    address = os.environ["MASTER_ADDR"] if len(hosts) > 1 else "127.0.0.1"
    number = hosts.index(places[worker.rank][0])
    node = ProgramNode(number, len(hosts), len(mine), address, places[0][1])
    return node, mine.index(worker.rank)
