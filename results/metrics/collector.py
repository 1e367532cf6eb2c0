"""The metrics by name: what a scrape gets."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from results.metrics.sweep_metrics import LOSSES, Running, SweepMetrics
from results.metrics.workers import Rank

_RANK_GAUGES = {
    "tune_gpu_utilization_ratio": ("system/gpu_percent", 1e-2, "Use of the rank's GPU, 0 to 1."),
    "tune_gpu_memory_used_bytes": ("system/gpu_memory_mb", 1e6, "GPU memory that it holds."),
    "tune_gpu_temperature_celsius": ("system/gpu_celsius", 1.0, "Temperature of its GPU."),
    "tune_gpu_power_watts": ("system/gpu_watts", 1.0, "Power that its GPU draws."),
    "tune_worker_cpu_ratio": ("system/cpu_percent", 1e-2, "CPU cores that its process uses."),
    "tune_worker_memory_bytes": ("system/memory_mb", 1e6, "Resident memory of its process."),
}
_RANK_COUNTERS = {
    "tune_communication_seconds": ("communication", 1.0, "Waits for other ranks' gradients."),
    "tune_worker_disk_read_bytes": ("system/disk_read_mb", 1e6, "Read by its processes."),
    "tune_worker_disk_written_bytes": ("system/disk_written_mb", 1e6, "Written by them."),
}
_NODE_COUNTERS = {
    "tune_node_network_sent_bytes": ("system/network_sent_mb", "Sent by a machine with workers."),
    "tune_node_network_received_bytes": ("system/network_received_mb", "Received by it."),
}
_RANK = ["sweep", "trial", "rank", "gpu"]
_Values = Mapping[Any, float]
"""By the values of the labels after `sweep`, a tuple of text."""


class SweepCollector(Collector):
    """Gives the metrics of one sweep to Prometheus' client, at each scrape."""

    def __init__(self, metrics: SweepMetrics) -> None:
        self._metrics, self._name = metrics, metrics.spec.name

    def registry(self) -> CollectorRegistry:
        """A registry with nothing else."""
        made = CollectorRegistry(auto_describe=False)
        made.register(self)
        return made

    def describe(self) -> list[Metric]:
        """No names before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        with self._metrics.lock:
            self._metrics.poll()
            families = [*self._of_sweep(), *self._of_checkpoints(), *self._of_trials()]
            families += [*self._of_ranks(), *self._of_nodes()]
        yield from families

    def _of_sweep(self) -> Iterator[Metric]:
        data, cost = self._metrics, self._metrics.cost
        versions = {"version": version("tune-platform"), "python": platform.python_version()}
        yield self._gauge("tune_build_info", "Versions.", {tuple(versions.values()): 1}, *versions)
        states = {(state.value,): n for state, n in data.states.items()}
        yield self._gauge("tune_trials", "Trials by state.", states, "state")
        yield self._gauge("tune_trial_slots", "Trials that can run at once.", {(): data.slots})
        best = {(name,): value for name, value in data.best.items()}
        yield self._gauge("tune_best_value", "Best value that a trial reported.", best, "metric")
        rungs = {(str(rung),): n for rung, n in data.rungs.items()}
        yield self._gauge("tune_rung_trials", "Trials that came to a rung.", rungs, "rung")
        used = {(limit,): part for limit, part in data.budget_used.items()}
        yield self._gauge("tune_budget_used_ratio", "Used part of the budget.", used, "limit")
        disk = shutil.disk_usage(data.paths.root)
        yield self._gauge("tune_storage_free_bytes", "Free in the storage.", {(): disk.free})
        yield self._gauge("tune_storage_size_bytes", "Size of the storage.", {(): disk.total})
        ended = {(result,): n for result, n in data.attempts.items()}
        yield self._counter("tune_attempts", "Attempts of trials that ended.", ended, "result")
        gpus = {(): cost.gpu_hours * 3600}
        yield self._counter("tune_gpu_seconds", "GPUs times the seconds they were held.", gpus)
        cpus = {(): cost.cpu_hours * 3600}
        yield self._counter("tune_cpu_seconds", "CPUs times the seconds they were held.", cpus)
        money = {(cost.currency,): cost.cost} if cost.currency else {}
        yield self._counter("tune_cost", "Price of what trials held.", money, "currency")
        lost = {(cost.currency, why): c for why, c in data.wasted.items() if cost.currency}
        text = "Price of what was of no use; part of tune_cost."
        yield self._counter("tune_wasted_cost", text, lost, "currency", "reason")

    def _of_checkpoints(self) -> Iterator[Metric]:
        data = self._metrics
        for name, help_, histogram in (
            ("tune_checkpoint_save_seconds", "From the copy until it is durable.", data.saves),
            ("tune_checkpoint_load_seconds", "Until the state is in place.", data.loads),
            ("tune_checkpoint_bytes", "Size of a checkpoint.", data.sizes),
        ):
            family = HistogramMetricFamily(name, help_, labels=["sweep"])
            family.add_metric([self._name], histogram.buckets, histogram.sum)
            yield family

    def _of_trials(self) -> Iterator[Metric]:
        running, progress = self._metrics.running, self._metrics.progress
        reported = {i: t.metrics for i, t in running.items()}
        losses = {i: next((n for n in LOSSES if n in m), None) for i, m in reported.items()}
        loss = {(i,): reported[i][name] for i, name in losses.items() if name}
        yield self._gauge("tune_train_loss", "Loss of the newest report.", loss, "trial")
        values = {
            (i, name): v for i, m in reported.items() for name, v in m.items() if name != losses[i]
        }
        help_ = "Other metrics of the newest report."
        yield self._gauge("tune_trial_metric", help_, values, "trial", "metric")
        known = {i: progress[i] for i in running if i in progress}
        steps = {(i,): p.step for i, p in known.items()}
        yield self._counter("tune_train_steps", "Steps of the trainable's clock.", steps, "trial")
        seen = {(i,): p.samples for i, p in known.items() if p.samples is not None}
        yield self._counter("tune_train_samples", "Samples of its training.", seen, "trial")
        since = {(i,): t.since for i, t in running.items()}
        help_ = "Last report, or start of the attempt."
        yield self._gauge("tune_trial_last_report_timestamp_seconds", help_, since, "trial")
        saved = {(i,): self._last_save(t) for i, t in running.items()}
        help_ = "Last checkpoint, or start of the attempt."
        yield self._gauge("tune_trial_last_checkpoint_timestamp_seconds", help_, saved, "trial")
        ranks = {(i,): t.attempt.workers for i, t in running.items()}
        yield self._gauge("tune_trial_workers", "Ranks of the trial.", ranks, "trial")
        number = {(i,): t.attempt.number for i, t in running.items()}
        yield self._gauge("tune_trial_attempt", "Number of its launch.", number, "trial")

    @staticmethod
    def _last_save(trial: Running) -> float:
        return max(trial.attempt.started, trial.workers.saved or 0.0)

    def _ranks(self) -> Iterator[tuple[tuple[str, str, str], Rank]]:
        """(trial, rank, gpu), and the rank; of the ranks that the attempt has."""
        for trial_id, trial in self._metrics.running.items():
            for number, rank in sorted(trial.workers.ranks.items()):
                if number < trial.attempt.workers:
                    yield (trial_id, str(number), rank.place.get("gpu", "")), rank

    def _of_ranks(self) -> Iterator[Metric]:
        ranks = list(self._ranks())
        for name, (key, unit, help_) in _RANK_GAUGES.items():
            values = {k: unit * r.values[key] for k, r in ranks if key in r.values}
            yield self._of_rank(name, help_, values)
        for name, (key, unit, help_) in _RANK_COUNTERS.items():
            totals = {k[:2]: unit * r.totals[key] for k, r in ranks if key in r.totals}
            yield self._counter(name, help_, totals, "trial", "rank")
        places = {
            (*k, r.place["uuid"], r.place.get("node", "")): 1 for k, r in ranks if "uuid" in r.place
        }
        help_ = "The GPU of each rank, to join with other exporters."
        yield self._gauge("tune_gpu_info", help_, places, *_RANK[1:], "uuid", "node")

    def _of_rank(self, name: str, help_: str, values: _Values) -> Metric:
        """With the label of the GPU where the metric is one of a GPU."""
        if name.startswith("tune_gpu"):
            return self._gauge(name, help_, values, *_RANK[1:])
        return self._gauge(name, help_, {k[:2]: v for k, v in values.items()}, *_RANK[1:3])

    def _of_nodes(self) -> Iterator[Metric]:
        for name, (key, help_) in _NODE_COUNTERS.items():
            values: dict[tuple[str, ...], float] = {}
            for _, rank in self._ranks():
                if key in rank.values and "node" in rank.place:
                    node = (rank.place["node"],)
                    values[node] = max(values.get(node, 0.0), 1e6 * rank.values[key])
            yield self._counter(name, help_, values, "node")

    def _gauge(self, name: str, help_: str, values: _Values, *labels: str) -> Metric:
        return self._filled(GaugeMetricFamily(name, help_, labels=["sweep", *labels]), values)

    def _counter(self, name: str, help_: str, values: _Values, *labels: str) -> Metric:
        return self._filled(CounterMetricFamily(name, help_, labels=["sweep", *labels]), values)

    def _filled(self, family: GaugeMetricFamily | CounterMetricFamily, values: _Values) -> Metric:
        for key, value in values.items():
            family.add_metric([self._name, *key], value)
        return family
