"""What is wrong or slow in the measurements of a rehearsal, and the remedy; pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from results.sweep_folder.lock import STALE_S
from search_spaces.errors import quantity

if TYPE_CHECKING:
    from tuning.doctor.launch import Rehearsal
    from tuning.doctor.settings import Measured

_CLOCK_S = 1.0
_SLOW_LINK, _SLOW_MB_PER_S = 5.0, 12.0
"""A link is slow below this part of the median speed, or below that of a 100 Mbit/s network."""
_STRAGGLER, _STRAGGLER_S = 3.0, 2.0
"""A worker is slow beyond this multiple of the median time, if it is this many seconds longer."""
_DISK_MB_PER_S, _LARGE_MB = 20.0, 50.0
_MAX_NAMED = 3

ADVICE = {
    "storage": "keep sweeps on a local disk or NFS that all machines mount",
    "tracking": "training goes on without it; start the server, or correct tracking.uri or "
    "MLFLOW_TRACKING_URI",
    "disk": "",
    "consolidation": "see that all machines mount CHECKPOINT_DIR for writing",
    "parquet_load": "see that the file is whole and that all machines can read it",
    "data_check": "see that all machines mount the data and CHECKPOINT_DIR at the same place",
    "model_load": "see that all machines mount CHECKPOINT_DIR; to cache the model again, delete "
    "its folder in base_models",
    "tokenizer_load": "see that the model's folder in base_models has its tokenizer",
    "training_simulation": "lower MAX_SEQ_LENGTH if the model takes fewer tokens, or take a "
    "machine with more memory",
    "checkpoint_save": "see that all machines may write to CHECKPOINT_DIR and that it has space",
    "checkpoint_read": "CHECKPOINT_DIR returns other bytes than were written: check its disk",
}
_NETWORK = "let the machines reach each other on all ports; see GLOO_SOCKET_IFNAME in the docs"
_SLOW_ADVICE = {
    "parquet_load": "copy the data to a disk of that machine, or check its network",
    "model_load": "check that machine's path to CHECKPOINT_DIR",
    "import": "install Python and its packages on a local disk of that machine",
    "training_simulation": "another program uses that machine, or its processor is slower",
    "checkpoint_save": "check that machine's path to CHECKPOINT_DIR, and its disk",
    "checkpoint_read": "check that machine's path to CHECKPOINT_DIR, and its disk",
}


@dataclass(frozen=True)
class RehearsalFinding:
    """Something wrong or slow.

    Attributes:
        breaks: whether a sweep would fail.
        what: the measurement, with rank and host.
        advice: how to repair it.
    """

    breaks: bool
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.what}; {self.advice}" if self.advice else self.what


_broken, _slow = partial(RehearsalFinding, True), partial(RehearsalFinding, False)


@dataclass(frozen=True)
class Plan:
    """What a sweep needs.

    Attributes:
        checkpoint_bytes: of one checkpoint; None if unknown.
        kept: checkpoints on the disk at once, of all trials.
        free_bytes: of the storage.
        workers_per_machine: most workers at once on one machine.
    """

    checkpoint_bytes: int | None
    kept: int
    free_bytes: int
    workers_per_machine: int


def find(rehearsal: Rehearsal, plan: Plan | None) -> list[RehearsalFinding]:
    """All findings, those that would break a sweep first."""
    workers = rehearsal.workers
    every: list[Callable[[Sequence[Measured]], Iterator[RehearsalFinding]]] = [
        *(errors, unequal, files, arithmetic, clocks, slow_links, stragglers, slow_storage),
    ]
    found = [
        *of_head(rehearsal.problems),
        *incomplete(workers, rehearsal.expected, rehearsal.failure),
        *(finding for check in every for finding in check(workers)),
        *(planned(workers, plan) if plan else ()),
    ]
    return sorted(found, key=lambda finding: not finding.breaks)


def of_head(problems: Mapping[str, str]) -> Iterator[RehearsalFinding]:
    """Failed phases of the head. A sweep runs without its tracker."""
    for phase, text in problems.items():
        yield RehearsalFinding(phase != "tracking", text, ADVICE[phase])


def incomplete(
    workers: Sequence[Measured], expected: int, failure: str | None
) -> Iterator[RehearsalFinding]:
    """Workers that did not start, or did not reach the end."""
    if failure is None:
        return
    if len(workers) < expected:
        up = f"{len(workers)} of {expected} workers started"
        yield _broken(f"{up}: {failure}", _NETWORK)
        return
    at: dict[str, list[Measured]] = {}
    for worker in workers:
        at.setdefault(worker["at"], []).append(worker)
    where = ", ".join(f"{_ranks(group)} in {phase}" for phase, group in at.items())
    yield _broken(f"the workers did not end: {failure}: {where}", _NETWORK)


def errors(workers: Sequence[Measured]) -> Iterator[RehearsalFinding]:
    """Phases that failed; ranks with the same error are named together."""
    same: dict[tuple[str, str], list[Measured]] = {}
    for worker in workers:
        for phase, error in worker["errors"].items():
            same.setdefault((phase, error), []).append(worker)
    for (phase, error), group in same.items():
        what = f"{phase} failed on {_ranks(group)}: {error}"
        yield _broken(what, ADVICE.get(phase, _NETWORK))


def unequal(workers: Sequence[Measured]) -> Iterator[RehearsalFinding]:
    """Versions and digests that differ between ranks."""
    kinds = {
        "versions": "install the same versions on all machines, by constraints.txt",
        "digests": "mount the same files on all machines, or copy them again",
    }
    for kind, advice in kinds.items():
        names = {name for worker in workers for name in worker.get(kind, {})}
        for name in sorted(names):
            groups: dict[str, list[Measured]] = {}
            for worker in workers:
                if kind in worker:
                    groups.setdefault(worker[kind].get(name, "none"), []).append(worker)
            if len(groups) > 1:
                listed = ", ".join(f"{value[:12]} on {_ranks(g)}" for value, g in groups.items())
                title = name if kind == "versions" else f"the digest of the {name}"
                yield _broken(f"{title} is not the same everywhere: {listed}", advice)


def files(workers: Sequence[Measured]) -> Iterator[RehearsalFinding]:
    """Files that a machine does not have, or that are no Parquet."""
    for worker in workers:
        if lost := worker.get("missing"):
            many = quantity(worker["missing_files"], "file")
            what = f"{_rank(worker)} lacks {many}: {_listed(lost)}"
            yield _broken(what, ADVICE["data_check"])
        for path, error in list(worker.get("unreadable", {}).items())[:_MAX_NAMED]:
            advice = "write the file again, or leave it out of PARQUET_PATH"
            yield _broken(f"{path} cannot be read: {error}", advice)


def arithmetic(workers: Sequence[Measured]) -> Iterator[RehearsalFinding]:
    """Sums and checkpoints that came out wrong."""
    if wrong := [w for w in workers if w.get("all_reduce_right") is False]:
        what = f"the all-reduce gave a wrong sum on {_ranks(wrong)}"
        yield _broken(what, "check the network cards and the memory of those machines")
    if changed := [w for w in workers if w.get("checkpoint_same") is False]:
        what = f"the checkpoint that was read back is another one on {_ranks(changed)}"
        yield _broken(what, ADVICE["checkpoint_read"])


def clocks(workers: Sequence[Measured]) -> Iterator[RehearsalFinding]:
    """Clocks that differ from rank 0's; far ones let two drivers own a sweep."""
    ahead: list[float] = next((w["clock_ahead"] for w in workers if "clock_ahead" in w), [])
    for worker, offset in zip(workers[1:], ahead, strict=False):
        if abs(offset) > _CLOCK_S:
            way = "ahead of" if offset > 0 else "behind"
            what = f"the clock of {_rank(worker)} is {abs(offset):.3g} s {way} that of rank 0"
            yield RehearsalFinding(
                abs(offset) > STALE_S, what, "run chrony or ntpd on that machine"
            )


def slow_links(workers: Sequence[Measured]) -> Iterator[RehearsalFinding]:
    """Links between machines that are slow, by themselves or beside the others."""
    by_rank = {worker["rank"]: worker for worker in workers}
    speeds = {
        pair: speed
        for pair, speed in link_speeds(workers).items()
        if len({by_rank[rank].get("node") for rank in pair}) == 2
    }
    usual = statistics.median(speeds.values()) if speeds else 0.0
    for (low, high), speed in sorted(speeds.items(), key=lambda item: item[1]):
        if speed * _SLOW_LINK < usual or speed < _SLOW_MB_PER_S:
            ends = f"{_rank(by_rank[low])} and {_rank(by_rank[high])}"
            what = f"the link between {ends} is slow: {speed:.3g} MB/s, usual {usual:.3g} MB/s"
            yield _slow(what, "check cable, switch port and network card of both")


def link_speeds(workers: Sequence[Measured]) -> dict[tuple[int, int], float]:
    """MB/s of each pair of ranks."""
    return {
        (worker["rank"], int(other)): speed
        for worker in workers
        for other, (_, speed) in worker.get("links", {}).items()
    }


def stragglers(workers: Sequence[Measured]) -> Iterator[RehearsalFinding]:
    """Workers that take much longer than most for something that each does alone."""
    for phase, advice in _SLOW_ADVICE.items():
        times = {w["rank"]: w[f"{phase}_time"] for w in workers if f"{phase}_time" in w}
        if len(times) < 2:
            continue
        usual = statistics.median_low(times.values())
        for worker in workers:
            time = times.get(worker["rank"], 0.0)
            if time > _STRAGGLER * usual and time > usual + _STRAGGLER_S:
                what = f"{_rank(worker)} takes {time:.3g} s for {phase}, others {usual:.3g} s"
                yield _slow(what, advice)


def slow_storage(workers: Sequence[Measured]) -> Iterator[RehearsalFinding]:
    """Checkpoints that take long because the storage is slow."""
    done = [w for w in workers if w.get("checkpoint_size_mb", 0) >= _LARGE_MB]
    if not done:
        return
    speed = statistics.median(w["checkpoint_size_mb"] / w["checkpoint_save_time"] for w in done)
    if speed < _DISK_MB_PER_S:
        what = f"checkpoints are written at {speed:.3g} MB/s per worker"
        yield _slow(what, "raise checkpoint.every, or use a faster CHECKPOINT_DIR")


def planned(workers: Sequence[Measured], plan: Plan) -> Iterator[RehearsalFinding]:
    """Disk and memory that the sweep will lack."""
    each = plan.checkpoint_bytes or 0
    if each * plan.kept > plan.free_bytes:
        need, free = each * plan.kept / 1e9, plan.free_bytes / 1e9
        what = f"the sweep keeps {plan.kept} checkpoints: {need:.1f} GB, but {free:.1f} GB are free"
        yield _broken(what, "lower checkpoint.keep or budget.trials, or free some space")
    for worker in workers:
        if "machine_memory_mb" not in worker:
            continue
        training = worker["import_memory_mb"] + each * 4 / 3 / 1e6  # gradients are not saved
        one = max(worker.get("memory_mb", 0.0), training)
        need, has = one * plan.workers_per_machine, worker["machine_memory_mb"]
        if need > has:
            many = f"{plan.workers_per_machine} workers of {one / 1e3:.1f} GB"
            what = f"{worker['host']} has {has / 1e3:.1f} GB of memory for {many}"
            yield _broken(what, "lower resources.concurrency or the size of the model")
            return


def _rank(worker: Measured) -> str:
    return f"rank {worker['rank']} on {worker.get('host', 'its machine')}"


def _ranks(workers: Sequence[Measured]) -> str:
    if len(workers) == 1:
        return _rank(workers[0])
    hosts = sorted({worker.get("host", "unknown hosts") for worker in workers})
    return f"ranks {', '.join(str(w['rank']) for w in workers)} on {_listed(hosts)}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
