"""Every file name of a sweep folder, in one place; nothing else spells them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_STEP = re.compile(r"step_(\d{8,})")


@dataclass(frozen=True)
class TrialPaths:
    """The files of one trial: `<sweep>/trials/<trial_id>/`."""

    root: Path

    @property
    def record(self) -> Path:
        """`trial.json`: configuration, seed, state, attempts, why it ended."""
        return self.root / "trial.json"

    @property
    def reports(self) -> Path:
        """`reports.jsonl`: append-only, one report a line."""
        return self.root / "reports.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of the committed checkpoints."""
        return self.root / "checkpoints"

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint of one step."""
        return self.checkpoints / f"step_{step:08d}"

    def checkpoint_steps(self) -> list[int]:
        """Steps that have a committed checkpoint folder (not verified), ascending."""
        if not self.checkpoints.is_dir():
            return []
        found = (_STEP.fullmatch(p.name) for p in self.checkpoints.iterdir())
        return sorted(int(m.group(1)) for m in found if m)

    @property
    def logs(self) -> Path:
        """Folder of the logs; holds one folder per attempt."""
        return self.root / "logs"

    def attempt(self, number: int) -> Path:
        """Folder of one attempt's logs; making it claims the attempt number."""
        return self.logs / f"attempt_{number:04d}"

    def log(self, attempt: int, rank: int) -> Path:
        """What one rank of one attempt printed."""
        return self.attempt(attempt) / f"rank_{rank}.log"

    def environment(self, attempt: int) -> Path:
        """What one attempt ran with: code, data, versions, hardware."""
        return self.attempt(attempt) / "environment.json"

    def samples(self, attempt: int) -> Path:
        """What rank 0 of one attempt took of the machine, a sample a line."""
        return self.attempt(attempt) / "system.jsonl"

    @property
    def ray_train(self) -> Path:
        """Folder of Ray Train's own runs, for trainables written for its public API."""
        return self.root / "ray_train"

    def ray_train_attempt(self, number: int) -> Path:
        """Ray Train's run folder of one attempt."""
        return self.ray_train / f"attempt_{number:04d}"

    def ray_train_attempts(self) -> list[Path]:
        """Ray Train's run folders, oldest first."""
        return sorted(self.ray_train.glob("attempt_*/"))

    def ray_train_manifest(self, folder: Path) -> Path:
        """The manifest of a checkpoint that Ray Train keeps; beside it, for it is not ours."""
        return folder.with_name(f"{folder.name}.manifest.json")

    def newest_checkpoint(self) -> Path | None:
        """Folder of the newest checkpoint (not verified): ours, or else Ray Train's."""
        if steps := self.checkpoint_steps():
            return self.checkpoint(steps[-1])
        # Ray Train names them by the time at which they were made.
        kept = self.ray_train.glob("attempt_*/checkpoint_*/")
        return max(kept, key=lambda p: p.name, default=None)


@dataclass(frozen=True)
class SweepPaths:
    """The files of one sweep: `<storage>/<sweep>/`."""

    root: Path

    @property
    def name(self) -> str:
        """The sweep's name is its folder's name."""
        return self.root.name

    @property
    def spec(self) -> Path:
        """`sweep.yaml`: the resolved sweep, frozen at start."""
        return self.root / "sweep.yaml"

    @property
    def history(self) -> Path:
        """Folder of what was replaced when the sweep was changed."""
        return self.root / "history"

    @property
    def spec_copy(self) -> Path:
        """Copy of `sweep.yaml` as it was when the newest session began."""
        return self.history / "sweep.yaml"

    @property
    def is_sweep(self) -> bool:
        """Whether the folder is a sweep's."""
        return self.spec.is_file() or self.spec_copy.is_file()

    def replaced_files(self, number: int) -> Path:
        """Folder of what one change replaced; they count from 1."""
        return self.history / f"{number:04d}"

    @property
    def inbox(self) -> Path:
        """Folder of commands that the driver has not carried out yet."""
        return self.root / "inbox"

    def command(self, command_id: str) -> Path:
        """File of one command."""
        return self.inbox / f"{command_id}.json"

    @property
    def evidence(self) -> Path:
        """`evidence.json`: what the sweeps of `search.warm_start` had found at the start."""
        return self.root / "evidence.json"

    @property
    def study(self) -> Path:
        """The Optuna study's journal."""
        return self.root / "study.journal"

    @property
    def lock(self) -> Path:
        """`owner.lock`: who drives the sweep now."""
        return self.root / "owner.lock"

    @property
    def state(self) -> Path:
        """`state.json`: what the sweep spent and where it is tracked."""
        return self.root / "state.json"

    @property
    def delivered(self) -> Path:
        """`delivered.json`: what the tracker has got of the sweep."""
        return self.root / "delivered.json"

    @property
    def trials(self) -> Path:
        """Folder of the trials."""
        return self.root / "trials"

    def trial(self, trial_id: str) -> TrialPaths:
        """The files of one trial."""
        return TrialPaths(self.trials / trial_id)

    def trial_ids(self) -> list[str]:
        """Ids of the trials that have a record, ascending."""
        found = (p.parent.name for p in self.trials.glob("*/trial.json"))
        return sorted(name for name in found if not name.endswith(".damaged"))

    @property
    def results(self) -> Path:
        """Folder of what was made of the sweep."""
        return self.root / "results"

    @property
    def leaderboard(self) -> Path:
        """`leaderboard.parquet`."""
        return self.results / "leaderboard.parquet"

    @property
    def report(self) -> Path:
        """`report.html`, where no other place is asked for."""
        return self.results / "report.html"

    @property
    def confirmation(self) -> Path:
        """`confirmation.json`: the best trials, measured again."""
        return self.results / "confirmation.json"

    def retrained(self, trial_id: str, seed: int) -> TrialPaths:
        """The files of a trial that was trained again with a fresh seed, to confirm it."""
        return TrialPaths(self.root / "confirmations" / trial_id / f"seed_{seed}")

    def reproduction(self, trial_id: str) -> TrialPaths:
        """The files of a trial that was run again from its record."""
        return TrialPaths(self.root / "reproductions" / trial_id)

    def soup(self, name: str) -> Path:
        """Folder of one average of weights."""
        return self.results / "soups" / name

    @property
    def exports(self) -> Path:
        """Folder of the exported models."""
        return self.results / "exports"

    @property
    def log(self) -> Path:
        """What the driver logged."""
        return self.root / "driver.log"

    @property
    def ray(self) -> Path:
        """Ray Tune's own state: a cache that may be thrown away."""
        return self.root / "ray"


@dataclass(frozen=True)
class Storage:
    """A folder of sweeps, with what they share: the tracking database and the data cache."""

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
        """MLflow's SQLite database, where no server is named."""
        return self.root / "mlflow.db"

    @property
    def artifacts(self) -> Path:
        """MLflow's artifact folder, beside the database."""
        return self.root / "mlflow_artifacts"

    @property
    def cache(self) -> Path:
        """Tokenised data, keyed by content and settings."""
        return self.root / "cache"
