"""Checks before anything starts: secrets, scheduler, workers, and sampled configurations."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from search_spaces.domains.conditional import ComputedValue
from search_spaces.domains.domain import Domain
from search_spaces.domains.normal import SPREAD
from search_spaces.errors import UserError, suggest
from search_spaces.loading.explain import MAX_PROBLEMS
from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.nested import KeyPath, walk
from search_spaces.redaction import holds_secret
from search_spaces.spec.search import ONE_METRIC
from search_spaces.spec.sweep import ENV_FIELDS, SweepSpec
from trainables.registry import resolve
from tuning.controller.preflight.places import code_key, first_named, locate
from tuning.controller.preflight.relative_paths import with_absolute_fixed
from tuning.controller.preflight.samples import SAMPLES, sample
from tuning.controller.preflight.workers import layout_problems, worker_problems


def preflight(
    loaded: LoadedSweep, *, files: bool = False, begun: bool = False
) -> list[dict[str, Any]]:
    """Sample configurations and check each against the trainable.

    Args:
        loaded: the sweep file.
        files: whether the trials run on this machine, which must have the files of their data.
        begun: whether the sweep has begun, perhaps with another version: settings without effect
            are no mistake then.

    Returns:
        The sampled parameters.

    Raises:
        UserError: all mistakes at once, each with its line of the sweep file.
    """
    sampled = sample(loaded.spec, SAMPLES)
    try:
        spec = loaded.spec if begun else with_absolute_fixed(loaded)
        configs = [spec.nest(params) for params in sampled]
        found = [
            *_secrets(spec),
            *_search_problems(spec),
            *_notify_problems(spec),
            *_monitoring_problems(spec),
            *_population_problems(spec),
            *(layout_problems(spec, sampled, configs) or worker_problems(spec, sampled, configs)),
            *_config_problems(spec, sampled, configs, files),
            *_code_problems(spec, configs),
            *(() if begun else resolve(spec.trainable).setting_problems(spec, configs)),
        ]
    except UserError as e:  # of the trainable itself
        where = loaded.source.where(code_key(loaded.spec))
        raise UserError(*(f"{where}: {line}" for line in e.problems)) from e
    if found:
        problems = [loaded.source.problem(path, text) for path, text in found]
        raise UserError(*(p.message for p in sorted(problems, key=lambda p: p.order)))
    return sampled


def _secrets(spec: SweepSpec) -> list[tuple[KeyPath, str]]:
    """Values that look like secrets: they would be written to the sweep folder and to MLflow."""
    data = spec.model_dump(mode="json")
    advice: dict[KeyPath, str] = dict.fromkeys(
        ENV_FIELDS, "write ${NAME} in its place, and set that variable"
    )
    other = "let the training code read it from an environment variable"
    return [
        (path, f"holds a secret, which would be written down; {advice.get(path, other)}")
        for path, value in walk(data)
        if holds_secret(next((str(p) for p in reversed(path) if isinstance(p, str)), ""), value)
    ]


def _search_problems(spec: SweepSpec) -> list[tuple[KeyPath, str]]:
    """Searchers of one objective, which would fail, or ignore the others."""
    name = spec.search.name
    if name not in ONE_METRIC or len(spec.objectives) == 1:
        return []
    return [(("search", "name"), f"{name} takes one metric; nsga2 and tpe take several")]


def _notify_problems(spec: SweepSpec) -> list[tuple[KeyPath, str]]:
    """A program that is not there would be missed when the sweep has something to say."""
    program = spec.notify.command[0] if spec.notify.command else None
    if program is None or shutil.which(program):
        return []
    return [(("notify", "command"), f"no such program, or not executable: {program}")]


def _monitoring_problems(spec: SweepSpec) -> list[tuple[KeyPath, str]]:
    """Files and folders that the exporter needs, and the library."""
    monitoring = spec.monitoring
    if not monitoring.enabled:
        return []
    if find_spec("prometheus_client") is None:
        return [(("monitoring",), "needs: pip install 'tune-platform[monitoring]'")]
    found: list[tuple[KeyPath, str]] = []
    for name in ("certificate", "key", "client_ca"):
        file = getattr(monitoring, name)
        if file is not None and not Path(file).is_file():
            found.append((("monitoring", name), f"no such file: {file}"))
    folder = monitoring.textfile
    if folder is not None and not (Path(folder).is_dir() and os.access(folder, os.W_OK)):
        found.append((("monitoring", "textfile"), f"no folder that can be written: {folder}"))
    return found


def _population_problems(spec: SweepSpec) -> list[tuple[KeyPath, str]]:
    """Population based training copies checkpoints, which not every trainable and mirror allows."""
    name = spec.scheduler.name
    if name not in ("pbt", "pb2"):
        return []
    found: list[tuple[KeyPath, str]] = []
    trainable = resolve(spec.trainable)
    if trainable.uses_ray_train:
        problem = f"copies checkpoints, but only a {trainable.kind} itself can read its own"
        advice = "use asha, or write the loop as a class"
        found.append((("scheduler", "name"), f"{name} {problem}; {advice}"))
    if spec.checkpoint.mirror is not None:
        problem = "copies checkpoints within the sweep folder, which are not mirrored"
        found.append((("checkpoint", "mirror"), f"{name} {problem}; remove this key, or use asha"))
    return found


def _code_problems(spec: SweepSpec, configs: list[dict[str, Any]]) -> list[tuple[KeyPath, str]]:
    """Mistakes in the training code, and metrics that it does not report."""
    trainable = resolve(spec.trainable)
    key = code_key(spec)
    found: list[tuple[KeyPath, str]] = [(key, p) for p in trainable.code_problems()]
    reported = {m for config in configs for m in trainable.reported_metrics(config)}
    missing = [o.metric for o in spec.objectives if o.metric not in reported]
    for name in missing if reported else ():
        problem = f"{spec.trainable} does not report '{name}'{suggest(name, reported)}"
        found.append((("metric",), problem))
    return found


def _config_problems(
    spec: SweepSpec, sampled: list[dict[str, Any]], configs: list[dict[str, Any]], files: bool
) -> list[tuple[KeyPath, str]]:
    """Every mistake once, by its place in the file.

    If a range breaks a rule, the message has one value: the bound, as written in the file.
    """
    seen: dict[tuple[KeyPath, str], str] = {}
    trainable = resolve(spec.trainable)
    for params, config in reversed(list(zip(sampled, configs, strict=True))):
        if len(seen) >= MAX_PROBLEMS:
            break
        for path, problem in trainable.config_problems(config, files=files):
            place, leaf = locate(spec, path or first_named(problem, config), params)
            categorical = isinstance(leaf, Domain) and leaf.is_categorical
            rule = problem if categorical else problem.partition(", got ")[0]
            if isinstance(leaf, ComputedValue) and "whole number" in problem:
                problem += "; round(…), ceil(…) and floor(…) give one"
            if isinstance(leaf, Domain) and leaf.normal is not None:
                problem += f"; {leaf.kind} reaches from mean - {SPREAD} sd to mean + {SPREAD} sd"
            seen.setdefault((place, rule if path else "they fit together"), problem)
    return [(place, problem) for (place, _), problem in seen.items()]
