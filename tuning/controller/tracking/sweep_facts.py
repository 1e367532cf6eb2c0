"""Collects the data of a whole sweep for trackers: settings, sweep file, code and versions."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from results.models.stages import original_of, read_stages
from results.paths import SweepPaths
from results.records.pipeline import pipeline_of
from results.sweep_folder.folder import read_state, sweep_argument
from results.tracking import PipelineFacts, SweepFacts
from search_spaces.redaction import redact
from search_spaces.spec.scheduler import POPULATIONS
from search_spaces.spec.sweep import SweepSpec
from trainables.registry import code_folder
from trainables.runtime.provenance import library_versions

_GIT_S = 10.0


def sweep_facts(paths: SweepPaths, spec: SweepSpec) -> SweepFacts:
    """Collect the facts of a sweep; once per session."""
    tags = {
        "folder": str(paths.root),
        "trainable": spec.trainable,
        "goal": ", ".join(f"{o.mode} {o.metric}" for o in spec.objectives),
        **git_tags(code_folder(spec.trainable)),
        **{f"tune.version.{name}": number for name, number in library_versions()},
    }
    if spec.search.warm_start:
        tags["tune.warm_start"] = ", ".join(spec.search.warm_start)
    artifacts = {"sweep.yaml": redact(paths.spec.read_text(encoding="utf-8"))}
    keep = {"search", "scheduler", "budget", "resources", "select", "seed", "metrics", "modes"}
    state, settings = read_state(paths), spec.model_dump(mode="json", include=keep)
    pipeline, about = _pipeline_facts(paths), redact(_description(spec, paths))
    name = paths.name if pipeline is None else spec.name  # of a copied folder they differ
    return SweepFacts(
        *(state.key, name, tags, settings, artifacts, pipeline, spec.prices, about),
        started=state.started[0] if state.started else time.time(),
        is_population=spec.scheduler.name in POPULATIONS,
    )


def _description(spec: SweepSpec, paths: SweepPaths) -> str:
    """Its purpose, and where what MLflow does not have can be seen."""
    name = sweep_argument(paths)
    commands = [f"tune {verb} {name}" for verb in ("show", "logs", "report", "ui --live")]
    see = f"More: {', '.join(f'`{command}`' for command in commands)}"
    return "\n\n".join(filter(None, (spec.description, see)))


def _pipeline_facts(paths: SweepPaths) -> PipelineFacts | None:
    """The pipeline of which the sweep is a stage; that of a copy or an older one is not known."""
    if (pipeline := pipeline_of(paths.root)) is None or original_of(pipeline):
        return None
    identity = read_stages(pipeline).identity
    return PipelineFacts(identity, pipeline.name) if identity else None


def git_tags(folder: Path) -> dict[str, str]:
    """Git commit of a folder, and whether tracked files differ from it; empty without Git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"mlflow.source.git.commit": commit, "tune.git.dirty": str(bool(changed)).lower()}


def code_commit(trainable: str) -> str:
    """The Git commit of a trainable's code, for people; empty without Git."""
    tags = git_tags(code_folder(trainable))
    changed = " with changes" if tags.get("tune.git.dirty") == "true" else ""
    return tags.get("mlflow.source.git.commit", "") + changed


def _git(folder: Path, *args: str) -> str | None:
    command = ["git", "-C", str(folder), "--no-optional-locks", *args]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
