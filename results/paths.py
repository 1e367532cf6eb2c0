"""Names of all files in a sweep folder. No other module spells them out."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

LINEAGE = "lineage.json"
"""File of a checkpoint with the digest of the weights from which the trial started."""
ADAPTER = "adapter_model.safetensors"
"""File of a checkpoint that holds an adapter (LoRA) instead of a whole model."""
ADAPTER_CONFIG = "adapter_config.json"
"""File beside it that says how the adapter changes which model."""

_STEP = re.compile(r"step_(\d{8,})")


@dataclass(frozen=True)
class TrialPaths:
    """The files of one trial: `<sweep>/trials/<trial_id>/`."""

    root: Path

    @property
    def sweep(self) -> SweepPaths:
        """The sweep of the trial."""
        return SweepPaths(self.root.parent.parent)

    @property
    def record(self) -> Path:
        """`trial.json`: configuration, seed, state, attempts, why it ended."""
        return self.root / "trial.json"

    @property
    def reports(self) -> Path:
        """`reports.jsonl`: append-only, one report per line, each bound to the one before it."""
        return self.root / "reports.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of the committed checkpoints."""
        return self.root / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """Folder of one step's checkpoint."""
        return self.checkpoints / f"step_{step:08d}"

    def checkpoint_steps(self) -> list[int]:
        """Steps that have a committed checkpoint folder (not verified), ascending."""
        if not self.checkpoints.is_dir():
            return []
        found = (_STEP.fullmatch(p.name) for p in self.checkpoints.iterdir())
        return sorted(int(m.group(1)) for m in found if m)

    def model(self, step: int) -> Path:
        """Folder with the whole model of a checkpoint in shards, or in user code's own format."""
        return self.root / "models" / f"step_{step:08d}"

    def answers(self, step: int) -> Path:
        """What a language model wrote at a report, a JSON object per line."""
        return self.root / "answers" / f"step_{step:08d}.jsonl"

    @property
    def logs(self) -> Path:
        """Folder of the logs, with one folder per attempt."""
        return self.root / "logs"

    def attempt(self, number: int) -> Path:
        """Folder of one attempt's logs. Creating it claims the attempt number."""
        return self.logs / f"attempt_{number:04d}"

    def log(self, attempt: int, rank: int) -> Path:
        """What one rank of one attempt printed."""
        return self.attempt(attempt) / f"rank_{rank}.log"

    def rank_logs(self) -> list[tuple[int, Path]]:
        """Rank and log of each worker of the newest attempt, by rank."""
        newest = max(self.logs.glob("attempt_*/"), key=lambda folder: folder.name, default=None)
        logs = newest.glob("rank_*.log") if newest else ()
        return sorted((int(log.stem.removeprefix("rank_")), log) for log in logs)

    def processes(self, attempt: int) -> Path:
        """Lock of one attempt, which each of its processes holds until it ends."""
        return self.attempt(attempt) / "processes.lock"

    def environment(self, attempt: int) -> Path:
        """Code, data, versions and hardware of one attempt."""
        return self.attempt(attempt) / "environment.json"

    def samples(self, attempt: int, rank: int = 0) -> Path:
        """What one rank of one attempt used, and where its time went; one sample per line."""
        return self.attempt(attempt) / f"system_rank_{rank}.jsonl"

    def checkpoint_times(self, attempt: int) -> Path:
        """How long each checkpoint of one attempt took to save or to load; one per line."""
        return self.attempt(attempt) / "checkpoints.jsonl"

    @property
    def ray_train(self) -> Path:
        """Folder of Ray Train's runs, for user code written for its public API."""
        return self.root / "ray_train"

    def ray_train_attempt(self, number: int) -> Path:
        """Ray Train's run folder of one attempt. Runs of a machine share folders by its name."""
        digest = hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
        return self.ray_train / f"{self.root.name}-{digest}-attempt_{number:04d}"

    def ray_train_attempts(self) -> list[Path]:
        """Ray Train's run folders, oldest first, those of a moved sweep included."""
        found = self.ray_train.glob("*attempt_*/")
        return sorted(found, key=lambda folder: folder.name.rpartition("_")[2])

    @property
    def counts_from_zero(self) -> Path:
        """Empty file: the first epoch that the trial's user code reports is number 0."""
        return self.ray_train / "counts_from_zero"

    def warning(self, attempt: int) -> Path:
        """One line about a mistake that an attempt's user code probably makes; absent if none."""
        return self.attempt(attempt) / "warning.txt"

    @property
    def work(self) -> Path:
        """Working directory of programs, and of user code that was written for Ray Train."""
        return self.root / "work"

    def ray_train_manifest(self, folder: Path) -> Path:
        """Manifest of a checkpoint that Ray Train owns. It lies beside that folder, not in it."""
        return folder.with_name(f"{folder.name}.manifest.json")

    def newest_checkpoint(self) -> Path | None:
        """Folder of the newest checkpoint (not verified): our own, otherwise Ray Train's."""
        if steps := self.checkpoint_steps():
            return self.checkpoint(steps[-1])
        kept = self.ray_train.glob("*attempt_*/*.manifest.json")
        newest = max(kept, key=lambda p: p.stat().st_mtime if p.exists() else 0, default=None)
        return newest and newest.with_name(newest.name.removesuffix(".manifest.json"))


@dataclass(frozen=True)
class SweepPaths:
    """The files of one sweep: `<storage>/<sweep>/`."""

    root: Path
    left_out: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """Trials that are not read, because their record is damaged."""

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
