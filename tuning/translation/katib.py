"""Translates an experiment of Katib (Kubeflow).

The keys are those of `kubeflow.org/v1beta1`, kind `Experiment`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tuning.translation.draft import Draft
from tuning.translation.yaml_file import line_of

_SEARCHERS = {
    "random": "random",
    "grid": "grid",
    "tpe": "tpe",
    "multivariate-tpe": "tpe",
    "bayesianoptimization": "gp",
    "cmaes": "cmaes",
    "sobol": "sobol",
}
_KNOWN = {"objective", "algorithm", "parameters", "trialTemplate", "parallelTrialCount"}
_KNOWN |= {"maxTrialCount", "earlyStopping", "metricsCollectorSpec"}


def translate(draft: Draft, data: Mapping[str, Any]) -> None:
    """Fill a draft from an experiment."""
    spec = data["spec"]
    objective = spec.get("objective", {})
    draft.metric = str(objective.get("objectiveMetricName", "loss"))
    draft.mode = "max" if objective.get("type") == "maximize" else "min"
    draft.set("budget", trials=spec.get("maxTrialCount"), target=objective.get("goal"))
    draft.set("resources", concurrency=spec.get("parallelTrialCount"))
    algorithm = str(spec.get("algorithm", {}).get("algorithmName", ""))
    draft.set("search", name=_SEARCHERS.get(algorithm))
    if algorithm not in _SEARCHERS and "algorithm" in spec:
        draft.note(line_of(spec, "algorithm"), f"algorithm {algorithm}: choose search, scheduler")
    if "earlyStopping" in spec:
        steps = {s["name"]: s["value"] for s in spec["earlyStopping"].get("algorithmSettings", [])}
        draft.set("scheduler", name="median", grace_period=int(steps.get("start_step", 4)))
    for parameter in spec.get("parameters", []):
        domain = _domain(parameter)
        if domain is None:
            line = line_of(parameter, "name")
            draft.note(line, f"parameter {parameter['name']} is not translated")
        else:
            draft.space[str(parameter["name"])] = domain
    draft.code = {"command": _command(draft, spec.get("trialTemplate", {}))}
    pattern = rf"{re.escape(draft.metric)}\s*[=:]\s*([-+.\deE]+)"
    draft.set("report_from", stdout={draft.metric: pattern})
    for key in spec.keys() - _KNOWN:
        draft.note(line_of(spec, key), f"{key} is not translated")


def _domain(parameter: Mapping[str, Any]) -> dict[str, Any] | None:
    space, kind = parameter.get("feasibleSpace", {}), parameter.get("parameterType")
    if kind == "categorical":
        return {"choice": [str(value) for value in space["list"]]}
    if kind == "discrete":
        return {"choice": [_number(value) for value in space["list"]]}
    if kind not in ("int", "double") or space.get("distribution") in ("normal", "logNormal"):
        return None
    log = "log" if space.get("distribution") == "logUniform" else ""
    number = int if kind == "int" else float
    low, high = number(space["min"]), number(space["max"])
    if (step := space.get("step")) is not None:
        name = f"q{log}randint" if kind == "int" else f"q{log}uniform"
        return {name: [low, high, number(step)]}
    return {f"{log}randint": [low, high + 1]} if kind == "int" else {f"{log}uniform": [low, high]}


def _number(text: object) -> int | float:
    value = float(str(text))
    return int(value) if value.is_integer() and "." not in str(text) else value


def _command(draft: Draft, template: Mapping[str, Any]) -> list[str]:
    """The command of the first container, with the names of the parameters."""
    names = {p["name"]: p["reference"] for p in template.get("trialParameters", [])}
    containers = list(_containers(template.get("trialSpec", {})))
    if not containers:
        draft.note(None, "no container was found; write the command")
        return ["python", "train.py", "{args}"]
    container = containers[0]
    if len(containers) > 1 or "image" in container:
        image = f"the image {container.get('image')} and other settings of the containers"
        draft.note(line_of(container, next(iter(container))), f"{image} are not translated")
    words = [str(word) for key in ("command", "args") for word in container.get(key, [])]
    return [
        re.sub(r"\$\{trialParameters\.(\w+)\}", lambda m: f"{{{names.get(m[1], m[1])}}}", word)
        for word in words
    ]


def _containers(node: Any) -> list[Any]:
    """The containers at any depth: Jobs, PyTorchJobs and others have them in different places."""
    if isinstance(node, Mapping):
        own = list(node.get("containers", []))
        return own or [c for part in node.values() for c in _containers(part)]
    return [c for part in node for c in _containers(part)] if isinstance(node, list) else []
