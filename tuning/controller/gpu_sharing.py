"""`gpus_per_worker: auto`: lets trials of one worker share a GPU as far as it trains more."""

from __future__ import annotations

from statistics import mean, median

from results.records.failures import Remedy
from results.records.reports import Report
from results.records.worker_samples import GPU_NEEDED, GPU_PERCENT, read_samples
from results.storage.atomic import write_atomic
from trainables.job import TrialJob
from trainables.registry import resolve
from tuning.controller.resources.capacity import Capacity
from tuning.controller.resources.gpu_shares import GpuShares, Measurement, decide, undo
from tuning.controller.resources.placement import Placement, workers_per_gpu
from tuning.controller.sweep import SweepController

_RATE = "_per_second"
"""End of the name of the metric that is compared."""
_UNKNOWN_AFTER = 3
"""Trials without a measurement, after which no others are waited for."""


class GpuSharing:
    """The measurements of a session's trials, and the share that follows.

    Args:
        run: the sweep.
        capacity: of the cluster; its placement changes with the share.
    """

    def __init__(self, run: SweepController, capacity: Capacity) -> None:
        self._run, self._capacity = run, capacity
        resources, own = run.spec.resources, resolve(run.spec.trainable)
        self._may_change = (
            resources.gpus_per_worker == "auto"
            and resources.max_workers == 1
            and capacity.placement.gpus_per_worker > 0
            and not (own.uses_ray_train or own.kind == "command")
        )
        self._state = GpuShares.read(run.paths)
        self._devices: dict[str, str] = {}
        self._rates: dict[str, list[tuple[str, float]]] = {}
        self._unknown = 0

    def on_report(self, job: TrialJob, report: Report) -> None:
        """Record a trial's rate, if as many others use its GPU as have room, all past their first
        report: until then they start and compile.
        """
        if not self._may_change or self._state.settled:
            return
        if (device := self._devices.get(job.key)) is None:
            samples = read_samples(job.paths, job.attempt)
            self._devices[job.key] = next((s.place.get("uuid", "") for s in samples), "")
            self._rates[job.key] = []
        elif [*self._devices.values()].count(device) == workers_per_gpu(self._share_of(job)):
            found = sorted(m for m in report.metrics.items() if m[0].endswith(_RATE) and m[1] > 0)
            self._rates[job.key] += found[:1]

    def on_end(self, job: TrialJob) -> bool:
        """An attempt has ended; returns whether the next ones have another share."""
        self._devices.pop(job.key, None)
        rates, before = self._rates.pop(job.key, None), self._state
        last = self._run.records[job.trial_id].attempts[-1]
        if not self._may_change:
            return False
        if last.remedy is Remedy.LARGER_SHARE and last.number == job.attempt:
            self._save(undo(before, self._share_of(job), f"{job.trial_id} ran out of memory"))
        elif rates is not None and not before.settled:
            self._measure(job, rates)
        if self._state.share == before.share:
            return False
        self._capacity.placement = self._placement(self._state.share)
        return True

    def _measure(self, job: TrialJob, rates: list[tuple[str, float]]) -> None:
        share, now = self._share_of(job), self._state
        reports = self._run.records[job.trial_id].attempts[job.attempt - 1].reports or 0
        samples = [s.values for s in read_samples(job.paths, job.attempt)][1:]
        busy = [s[GPU_PERCENT] for s in samples if GPU_PERCENT in s]
        needed = [s[GPU_NEEDED] for s in samples if GPU_NEEDED in s]
        if rates and needed:
            idle, memory = 1 - mean(busy) / 100, max(needed) / 100
            rate, unit = median(value for _, value in rates), f"{rates[0][0].removesuffix(_RATE)}/s"
            found = Measurement(share=share, idle=idle, memory=memory, rate=rate, unit=unit)
            now = now.model_copy(update={"measured": (*now.measured, found)})
            self._save(decide(now, lambda share: self._placement(share).concurrency))
        elif reports > 1 and share == 1:
            self._unknown += 1
            if self._unknown == _UNKNOWN_AFTER:
                lacks = "a GPU's use is not measured" if rates else f"no metric ends in {_RATE}"
                self._save(now.decided(f"1 stays: {lacks}", now.share, settled=True))

    def _placement(self, share: float) -> Placement:
        return self._capacity.placement.with_share(share, self._capacity.nodes())

    def _share_of(self, job: TrialJob) -> float:
        attempt = self._run.records[job.trial_id].attempts[job.attempt - 1]
        return attempt.gpus / attempt.workers

    def _save(self, state: GpuShares) -> None:
        """Write the state, and say what was decided."""
        self._run.table.fence.check()
        write_atomic(self._run.paths.gpu_shares, state.model_dump_json(indent=1).encode())
        for line in state.decisions[len(self._state.decisions) :]:
            self._run.observers.message(line)
        self._state = state
