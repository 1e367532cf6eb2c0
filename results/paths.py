"""Names of all files in a sweep folder; `trial_paths` has those of its trials.

No other module spells them out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from results.trial_paths import TrialPaths


@dataclass(frozen=True)
class SweepPaths:
    """The files of one sweep: `<storage>/<sweep>/`."""

    root: Path
    left_out: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Trials that are not read, because their record is damaged."""

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
    def spec(self) -> Path:
        """`sweep.yaml`: the resolved spec, fixed when the sweep starts."""
        return self.root / "sweep.yaml"

    @property
    def history(self) -> Path:
        """Folder of the files that changes to the sweep replaced."""
        return self.root / "history"

    @property
    def spec_copy(self) -> Path:
        """Copy of `sweep.yaml` from the start of the newest session."""
        return self.history / "sweep.yaml"

    @property
    def is_sweep(self) -> bool:
        """Whether the folder is a sweep folder."""
        return os.path.lexists(self.spec) or self.spec_copy.is_file()

    def replaced_files(self, number: int) -> Path:
        """Folder of the files that one change replaced. Changes count from 1."""
        return self.history / f"{number:04d}"

    @property
    def ray_logs(self) -> Path:
        """Folder of the logs of Ray's processes in sessions in which something failed."""
        return self.ray / "logs"

    @property
    def inbox(self) -> Path:
        """Folder of commands that wait for the driver."""
        return self.root / "inbox"

    def command(self, command_id: str) -> Path:
        """File of one command."""
        return self.inbox / f"{command_id}.json"

    @property
    def evidence(self) -> Path:
        """`evidence.json`: findings of the `search.warm_start` sweeps at the start."""
        return self.root / "evidence.json"

    @property
    def study(self) -> Path:
        """The Optuna study's journal."""
        return self.root / "study.journal"

    @property
    def record_log(self) -> Path:
        """`records.jsonl`: a line for every write of a record, so that an older one is noticed."""
        return self.root / "records.jsonl"

    @property
    def lock(self) -> Path:
        """`owner.lock`: the driver that owns the sweep now."""
        return self.root / "owner.lock"

    @property
    def state(self) -> Path:
        """`state.json`: time spent by the sweep, and its identity in the tracker."""
        return self.root / "state.json"

    @property
    def delivered(self) -> Path:
        """`delivered.json`: what was delivered to the tracker."""
        return self.root / "delivered.json"

    @property
    def code(self) -> Path:
        """Folder of training code that is stored by value: a function of a notebook."""
        return self.root / "code"

    @cached_property
    def trials(self) -> Path:
        """Folder of the trials."""
        return self.root / "trials"

    def trial(self, trial_id: str) -> TrialPaths:
        """The files of one trial."""
        return TrialPaths(self.trials / trial_id)

    def trial_ids(self) -> list[str]:
        """Ids of all trials with a record, ascending."""
        found = (p.parent.name for p in self.trials.glob("*/trial.json"))
        kept = (name for name in found if not name.endswith(".damaged"))
        return sorted(name for name in kept if name not in self.left_out)

    @property
    def results(self) -> Path:
        """Folder of what was computed from the sweep: leaderboard, soups, exports, report."""
        return self.root / "results"

    @property
    def leaderboard(self) -> Path:
        """`leaderboard.parquet`."""
        return self.results / "leaderboard.parquet"

    @property
    def report(self) -> Path:
        """`report.html`, the default path of the report."""
        return self.results / "report.html"

    @property
    def confirmation(self) -> Path:
        """`confirmation.json`: new measurements of the best trials."""
        return self.results / "confirmation.json"

    def retrained(self, trial_id: str, seed: int) -> TrialPaths:
        """Files of one retraining of a trial with a new seed, for a confirmation."""
        return TrialPaths(self.root / "confirmations" / trial_id / f"seed_{seed}")

    def reproduction(self, trial_id: str) -> TrialPaths:
        """Files of a reproduction of a trial from its record."""
        return TrialPaths(self.root / "reproductions" / trial_id)

    def soup(self, name: str) -> Path:
        """Folder of one weight average."""
        return self.results / "soups" / name

    @property
    def exports(self) -> Path:
        """Folder of the exported models."""
        return self.results / "exports"

    @property
    def ray_messages(self) -> Path:
        """What Ray's own processes say: lost machines, slow starts."""
        return self.root / "ray" / "messages.log"

    @property
    def log(self) -> Path:
        """Output of detached sessions, and stacks of sessions that were stuck."""
        return self.root / "driver.log"

    @property
    def job(self) -> Path:
        """`job.json`: the engine to which the sweep was submitted, and its id there."""
        return self.root / "job.json"

    @property
    def manifests(self) -> Path:
        """`k8s/`: what Kubernetes was given."""
        return self.root / "k8s"

    @property
    def job_script(self) -> Path:
        """`job.sh`: what the engine runs."""
        return self.root / "job.sh"

    @property
    def ray(self) -> Path:
        """Ray Tune's own state: a cache that may be deleted."""
        return self.root / "ray"


@dataclass(frozen=True)
class Storage:
    """A folder of sweeps that share a tracking database and a data cache."""

    root: Path

    def sweep(self, name: str) -> SweepPaths:
        """The files of one sweep."""
        return SweepPaths(self.root / name)

    def sweeps(self) -> Iterator[SweepPaths]:
        """Every sweep in the storage, by name."""
        folders = sorted(self.root.iterdir()) if self.root.is_dir() else []
        yield from (paths for folder in folders if (paths := SweepPaths(folder)).is_sweep)

    @property
    def tracking_db(self) -> Path:
        """MLflow's SQLite database, used when no tracking server is configured."""
        return self.root / "mlflow.db"

    @property
    def artifacts(self) -> Path:
        """MLflow's artifact folder."""
        return self.root / "mlflow_artifacts"

    @property
    def targets(self) -> Path:
        """Folder that tells Prometheus (`file_sd`) the address of each driver with an exporter."""
        return self.root / ".monitoring"

    @property
    def probes(self) -> Path:
        """Folder of the fastest layouts that `tune probe` has found."""
        return self.root / ".probes"

    @property
    def cache(self) -> Path:
        """Tokenised data, keyed by content and settings."""
        return self.root / "cache"
