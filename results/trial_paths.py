"""Names of all files in the folder of a trial. No other module spells them out."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

LINEAGE = "lineage.json"
"""File of a checkpoint with the digest of the weights from which the trial started."""
ADAPTER = "adapter_model.safetensors"
"""File of a checkpoint that holds an adapter (LoRA) instead of a whole model."""
ADAPTER_CONFIG = "adapter_config.json"
"""File beside it that says how the adapter changes which model."""
DATA_KEY = "data.json"
"""File of a checkpoint with the key of the data on which it was trained."""

_STEP = re.compile(r"step_(\d{8,})")
_ATTEMPT = re.compile(r"attempt_(\d+)")


def below(name: str) -> cached_property[Path]:
    """An attribute: the file or folder of this name below an object's `root`."""
    return cached_property(lambda paths: paths.root / name)


@dataclass(frozen=True)
class TrialPaths:
    """The files of one trial: `<sweep>/trials/<trial_id>/`."""

    root: Path
    record = below("trial.json")
    """`trial.json`: configuration, seed, state, attempts, why it ended."""
    reports = below("reports.jsonl")
    """`reports.jsonl`: append-only, one report per line, each bound to the one before it."""
    checkpoints = below("checkpoints")
    """Folder of the committed checkpoints."""
    logs = below("logs")
    """Folder of the logs, with one folder per attempt."""
    ray_train = below("ray_train")
    """Folder of Ray Train's runs, for user code written for its public API."""
    work = below("work")
    """Working directory of programs, and of user code that was written for Ray Train."""

    def checkpoint(self, step: int) -> Path:
        """Folder of one step's checkpoint."""
        return self.checkpoints / f"step_{step:08d}"

    def checkpoint_steps(self) -> list[int]:
        """Steps that have a committed checkpoint folder (not verified), ascending."""
        if not self.checkpoints.is_dir():
            return []
        found = (_STEP.fullmatch(p.name) for p in self.checkpoints.iterdir())
        return sorted(int(m[1]) for m in found if m)

    def model(self, step: int) -> Path:
        """Folder with the whole model of a checkpoint in shards, or in user code's own format."""
        return self.root / "models" / f"step_{step:08d}"

    def answers(self, step: int) -> Path:
        """What a language model wrote at a report, a JSON object per line."""
        return self.root / "answers" / f"step_{step:08d}.jsonl"

    def attempt(self, number: int) -> Path:
        """Folder of one attempt's logs. Creating it claims the attempt number."""
        return self.logs / f"attempt_{number:04d}"

    def attempts(self) -> list[int]:
        """Numbers of all attempts that have logs."""
        folders = self.logs.iterdir() if self.logs.is_dir() else iter(())
        return [int(m[1]) for p in folders if (m := _ATTEMPT.fullmatch(p.name))]

    def log(self, attempt: int, rank: int) -> Path:
        """What one rank of one attempt printed."""
        return self.attempt(attempt) / f"rank_{rank}.log"

    def rank_logs(self) -> list[tuple[int, Path]]:
        """Rank and log of each worker of the newest attempt, by rank."""
        logs = self.attempt(max(self.attempts(), default=0)).glob("rank_*.log")
        ranks = ((log.stem.removeprefix("rank_"), log) for log in logs)
        return sorted((int(rank), log) for rank, log in ranks if rank.isdecimal())

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
