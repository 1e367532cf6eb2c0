"""Names of all files in a sweep folder; `trial_paths` has those of its trials.

No other module spells them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from results.trial_paths import TrialPaths, below


@dataclass(frozen=True)
class SweepPaths:
    """The files of one sweep: `<storage>/<sweep>/`."""

    root: Path
    left_out: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Trials that are not read, because their record is damaged."""
    spec = below("sweep.yaml")
    """`sweep.yaml`: the resolved spec, fixed when the sweep starts."""
    history = below("history")
    """Folder of the files that changes to the sweep replaced."""
    spec_copy = below("history/sweep.yaml")
    """Copy of `sweep.yaml` from the start of the newest session."""
    ray_logs = below("ray/logs")
    """Folder of the logs of Ray's processes in sessions in which something failed."""
    inbox = below("inbox")
    """Folder of commands that wait for the driver."""
    evidence = below("evidence.json")
    """`evidence.json`: findings of the `search.warm_start` sweeps at the start."""
    study = below("study.journal")
    """The Optuna study's journal."""
    record_log = below("records.jsonl")
    """`records.jsonl`: a line for every write of a record, so that an older one is noticed."""
    notes = below("notes.jsonl")
    """`notes.jsonl`: what people wrote about the sweep and its trials."""
    lock = below("owner.lock")
    """`owner.lock`: the driver that owns the sweep now."""
    state = below("state.json")
    """`state.json`: time spent by the sweep, and its identity in the tracker."""
    delivered = below("delivered.json")
    """`delivered.json`: what was delivered to the tracker."""
    gpu_shares = below("gpu_shares.json")
    """`gpu_shares.json`: how many trials share a GPU, and the measurements that decided it."""
    code = below("code")
    """Folder of training code that is stored by value: a function of a notebook."""
    trials = below("trials")
    """Folder of the trials."""
    results = below("results")
    """Folder of what was computed from the sweep: leaderboard, soups, exports, report."""
    leaderboard = below("results/leaderboard.parquet")
    """`leaderboard.parquet`."""
    report = below("results/report.html")
    """`report.html`, the default path of the report."""
    confirmation = below("results/confirmation.json")
    """`confirmation.json`: new measurements of the best trials."""
    exports = below("results/exports")
    """Folder of the exported models."""
    evaluations = below("results/evaluations")
    """Folder of the scores of models on tasks of a benchmark."""
    ray_messages = below("ray/messages.log")
    """What Ray's own processes say: lost machines, slow starts."""
    log = below("driver.log")
    """Output of detached sessions, and stacks of sessions that were stuck."""
    job = below("job.json")
    """`job.json`: the engine to which the sweep was submitted, and its id there."""
    manifests = below("k8s")
    """`k8s/`: what Kubernetes was given."""
    job_script = below("job.sh")
    """`job.sh`: what the engine runs."""
    ray = below("ray")
    """Ray Tune's own state: a cache that may be deleted."""

    @classmethod
    def of_trial(cls, trial: TrialPaths) -> SweepPaths:
        """The files of the sweep of a trial."""
        return cls(trial.root.parent.parent)

    @property
    def name(self) -> str:
        """The sweep's name is its folder's name."""
        return self.root.name

    @property
    def storage(self) -> Storage:
        """The folder of sweeps that holds this one."""
        return Storage(self.root.parent)

    @property
    def is_sweep(self) -> bool:
        """Whether the folder is a sweep folder."""
        lost = self.spec_copy.is_file() or self.record_log.is_file()
        return lost or os.path.lexists(self.spec)

    def replaced_files(self, number: int) -> Path:
        """Folder of the files that one change replaced. Changes count from 1."""
        return self.history / f"{number:04d}"

    def command(self, command_id: str) -> Path:
        """File of one command."""
        return self.inbox / f"{command_id}.json"

    def trial(self, trial_id: str) -> TrialPaths:
        """The files of one trial."""
        return TrialPaths(self.trials / trial_id)

    def trial_ids(self) -> list[str]:
        """Ids of all trials with a record, ascending."""
        found = (p.parent.name for p in self.trials.glob("*/trial.json"))
        kept = (name for name in found if not name.endswith(".damaged"))
        return sorted(name for name in kept if name not in self.left_out)

    def retrained(self, trial_id: str, seed: int) -> TrialPaths:
        """Files of one retraining of a trial with a new seed, for a confirmation."""
        return TrialPaths(self.root / "confirmations" / trial_id / f"seed_{seed}")

    def reproduction(self, trial_id: str) -> TrialPaths:
        """Files of a reproduction of a trial from its record."""
        return TrialPaths(self.root / "reproductions" / trial_id)

    def soup(self, name: str) -> Path:
        """Folder of one weight average."""
        return self.results / "soups" / name


@dataclass(frozen=True)
class Storage:
    """A folder of sweeps that share a tracking database and a data cache."""

    root: Path
    tracking_db = below("mlflow.db")
    """MLflow's SQLite database, used when no tracking server is configured."""
    artifacts = below("mlflow_artifacts")
    """MLflow's artifact folder."""
    targets = below(".monitoring")
    """Folder that tells Prometheus (`file_sd`) the address of each driver with an exporter."""
    probes = below(".probes")
    """Folder of the fastest layouts that `tune probe` has found."""
    index = below("index.html")
    """`index.html`: the default path of the home page of all sweeps."""
    cache = below("cache")
    """Tokenised data, keyed by content and settings."""

    def sweep(self, name: str) -> SweepPaths:
        """The files of one sweep."""
        return SweepPaths(self.root / name)

    def sweeps(self) -> Iterator[SweepPaths]:
        """Every sweep in the storage, by name; no hidden folder, which may be half a copy."""
        folders = sorted(self.root.glob("[!.]*"))
        yield from (paths for folder in folders if (paths := SweepPaths(folder)).is_sweep)
