"""Translates a sweep of Weights & Biases.

The keys are those of https://docs.wandb.ai/guides/sweeps/sweep-config-keys.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tuning.translation.draft import Draft
from tuning.translation.yaml_file import line_of

_WORDS = {"${interpreter}": ["python"], "${env}": [], "/usr/bin/env": [], "${args}": ["{args}"]}
_SEARCHERS = {"bayes": "gp", "grid": "grid", "random": "random"}
_KNOWN = {"program", "method", "metric", "parameters", "command", "run_cap", "early_terminate"}
_KNOWN |= {"name", "description", "project", "entity"}


def translate(draft: Draft, data: Mapping[str, Any]) -> None:
    """Fill a draft from a sweep configuration."""
    _command(draft, data)
    metric = data.get("metric", {})
    draft.metric = str(metric.get("name", "loss"))
    draft.mode = "max" if metric.get("goal") == "maximize" else "min"
    draft.set("search", name=_SEARCHERS.get(str(data.get("method"))))
    draft.set("budget", trials=data.get("run_cap"))
    draft.note(None, f"the program must report {draft.metric}: see docs/commands.md, Reports")
    _parameters(draft, data.get("parameters", {}), draft.space, draft.fixed)
    if stop := data.get("early_terminate"):
        _early_terminate(draft, stop, line_of(data, "early_terminate"))
    for key in data.keys() - _KNOWN:
        draft.note(line_of(data, key), f"{key} is not translated")


def _command(draft: Draft, data: Mapping[str, Any]) -> None:
    program = str(data.get("program", "train.py"))
    command: list[str] = []
    for word in data.get("command", ["${interpreter}", "${program}", "${args}"]):
        found = [program] if word == "${program}" else _WORDS.get(str(word), [str(word)])
        if any(part.startswith("${") for part in found):
            draft.note(line_of(data, "command"), f"{word} of the command is not translated")
            continue
        command += found
    draft.code = {"command": command}


def _parameters(
    draft: Draft, given: Mapping[str, Any], space: dict[str, Any], fixed: dict[str, Any]
) -> None:
    for name, keys in given.items():
        if "parameters" in keys:
            inner: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
            _parameters(draft, keys["parameters"], *inner)
            for target, found in zip((space, fixed), inner, strict=True):
                target.update({name: found} if found else {})
        elif "value" in keys:
            fixed[name] = keys["value"]
        elif (domain := _domain(keys)) is None:
            draft.note(line_of(given, name), f"{name}: {dict(keys)} is not translated")
        else:
            space[name] = domain
            if "probabilities" in keys:
                draft.note(line_of(given, name), f"{name}: all values are equally likely here")


def _domain(keys: Mapping[str, Any]) -> dict[str, Any] | None:
    if "values" in keys:
        return {"choice": list(keys["values"])}
    kind = str(keys.get("distribution", ""))
    low, high, q = keys.get("min"), keys.get("max"), keys.get("q", 1)
    if kind in ("normal", "q_normal"):
        given = [keys.get("mu", 0.0), keys.get("sigma", 1.0)]
        return {"qrandn": [*given, q]} if kind == "q_normal" else {"randn": given}
    if low is None or high is None:
        return None
    whole = isinstance(low, int) and isinstance(high, int)
    if kind == "int_uniform" or (not kind and whole):
        return {"randint": [low, high + 1]}
    if kind in ("log_uniform", "q_log_uniform"):
        low, high = math.exp(low), math.exp(high)
    found = {
        "": {"uniform": [low, high]},
        "uniform": {"uniform": [low, high]},
        "q_uniform": {"qrandint" if whole and isinstance(q, int) else "quniform": [low, high, q]},
        "log_uniform": {"loguniform": [low, high]},
        "log_uniform_values": {"loguniform": [low, high]},
        "q_log_uniform": {"qloguniform": [low, high, q]},
        "q_log_uniform_values": {"qloguniform": [low, high, q]},
    }
    return found.get(kind)


def _early_terminate(draft: Draft, stop: Mapping[str, Any], line: int) -> None:
    eta = stop.get("eta", 3)
    grace, most = stop.get("min_iter"), stop.get("max_iter")
    if grace is None and most is not None:
        grace = max(1, int(most / eta ** stop.get("s", 1)))
    if most is None:
        grace = grace or 1
        most = int(grace * eta**4)
        draft.note(line, f"max_t is a guess: a trial is complete after {most} reports")
    draft.set("scheduler", name="asha", grace_period=grace, max_t=most, reduction_factor=eta)
