"""Translates an experiment of Katib (Kubeflow).

The keys are those of `kubeflow.org/v1beta1`, kind `Experiment`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from search_spaces.loading.sweep_file import OPEN
from search_spaces.patterns import metric_pattern
from search_spaces.spec.command import NAME
from tuning.translation.domains import between
from tuning.translation.draft import Draft
from tuning.translation.yaml_part import YamlPart, as_number

_SEARCHERS = {
    "random": "random",
    "grid": "grid",
    "tpe": "tpe",
    "multivariate-tpe": "tpe",
    "bayesianoptimization": "gp",
    "cmaes": "cmaes",
    "sobol": "sobol",
}
_PARALLEL, _START_STEP = 3, 4
"""Katib's defaults of parallelTrialCount, and of the median stopping rule's start_step."""
_PLACE = re.compile(rf"\$\{{trialParameters\.([^}}]+)\}}|\{{({NAME})\}}")
"""A reference to a parameter, or what a command of ours would take for one."""


def is_experiment(file: YamlPart) -> bool:
    """Whether a file says that it is one."""
    version = str(file.part("apiVersion").raw)
    return file.part("kind").raw == "Experiment" and version.startswith("kubeflow.org/")


def translate(draft: Draft, file: YamlPart) -> None:
    """Fill a draft from an experiment."""
    file.get("kind", str), file.get("apiVersion", str)
    spec = file.part("spec")
    _objective(draft, spec.part("objective"))
    _limits(draft, spec)
    _algorithm(draft, spec.part("algorithm"))
    _early_stopping(draft, spec.part("earlyStopping"))
    names = {}
    for parameter in spec.part("parameters").parts():
        given = str(parameter.get("name", str))
        names[given] = re.sub(r"^(?=\d)|[^\w.]", "_", given)
        if names[given] != given:
            draft.note(parameter.line, f"{given} is called {names[given]} here")
        domain = _domain(parameter)
        if domain is None:
            draft.note(parameter.line, f"{parameter} is not translated")
            parameter.read()
        draft.add(parameter.line, names[given], domain or OPEN)
    _collector(draft, spec.part("metricsCollectorSpec"))
    _command(draft, spec.part("trialTemplate"), names)


def _objective(draft: Draft, objective: YamlPart) -> None:
    metric, goal = objective.get("objectiveMetricName", str), objective.get("type", str)
    draft.set("metric", metric or OPEN)
    draft.set_mode(objective.line, f"objective.type: {goal}", goal)
    draft.set("budget.target", objective.number("goal"))
    draft.set("select.at", "best")  # Katib's default: the best value of a trial
    for strategy in objective.part("metricStrategies").parts():
        if strategy.part("name").raw != metric:
            continue
        strategy.get("name", str)
        value = strategy.get("value", str)
        if value == "latest":
            draft.set("select.at", "last")
        elif value != draft.keys["mode"]:
            draft.open(strategy.line, f"metricStrategies: {value} of {metric}", "select.at")


def _limits(draft: Draft, spec: YamlPart) -> None:
    trials = spec.get("maxTrialCount", int)
    draft.set("budget.trials", trials)
    if trials is None:
        draft.open(spec.line, "an experiment without maxTrialCount", "budget.trials")
    parallel = spec.get("parallelTrialCount", int)
    if parallel is None:
        parallel = OPEN if "parallelTrialCount" in spec else _PARALLEL
    draft.set("resources.concurrency", parallel)


def _algorithm(draft: Draft, algorithm: YamlPart) -> None:
    name = algorithm.get("algorithmName", str)
    if name not in _SEARCHERS:
        draft.open(algorithm.line, f"algorithmName: {name}", "search.name")
        return
    draft.set("search.name", _SEARCHERS[name])
    if name == "multivariate-tpe":
        draft.set("search.multivariate", True)
    for setting in algorithm.part("algorithmSettings").parts():
        if setting.part("name").raw == "random_state" and (seed := setting.number("value")):
            setting.get("name", str)
            draft.set("seed", seed)


def _early_stopping(draft: Draft, stopping: YamlPart) -> None:
    if stopping.raw is None:
        return
    if stopping.get("algorithmName", str) != "medianstop":
        draft.open(stopping.line, str(stopping), "scheduler.name")
        stopping.read()
        return
    draft.set("scheduler", {"name": "median", "grace_period": _START_STEP})
    for setting in stopping.part("algorithmSettings").parts():
        if setting.part("name").raw == "start_step":
            setting.get("name", str)
            draft.set("scheduler.grace_period", setting.number("value"))


def _domain(parameter: YamlPart) -> dict[str, Any] | None:
    kind, space = parameter.get("parameterType", str), parameter.part("feasibleSpace")
    if kind in ("categorical", "discrete"):
        values = space.get("list", list) or []
        return {"choice": [str(v) if kind == "categorical" else as_number(v) for v in values]}
    distribution = space.get("distribution", str) or "uniform"
    low, high = (space.number(bound) for bound in ("min", "max"))
    step = space.number("step")
    if kind not in ("int", "double") or distribution not in ("uniform", "logUniform"):
        return None
    if low is None or high is None or (step is None and "step" in space):
        return None
    number: Callable[[Any], int | float] = int if kind == "int" else float
    if kind == "int" and not all(float(x).is_integer() for x in (low, high, step or 1)):
        return None
    log = distribution == "logUniform"
    return between(number(low), number(high), None if step is None else number(step), log=log)


def _collector(draft: Draft, collector: YamlPart) -> None:
    metric = draft.keys["metric"]
    kind = collector.part("collector").get("kind", str) or "StdOut"
    if metric != OPEN and kind == "StdOut" and collector.part("source").part("filter").raw is None:
        draft.set("report_from.stdout", {metric: metric_pattern(metric)})
        return
    draft.open(collector.line, str(collector), "report_from")
    collector.read()


def _command(draft: Draft, template: YamlPart, names: dict[str, str]) -> None:
    """The command of the primary container, with the names of the parameters."""
    references = {}
    for given in template.part("trialParameters").parts():
        references[given.get("name", str)] = names.get(str(given.get("reference", str)), OPEN)
    containers = _containers(template.part("trialSpec"))
    primary = template.part("primaryContainerName").raw
    chosen = [c for c in containers if c.part("name").raw == primary] or containers
    words = [OPEN] if chosen and "command" not in chosen[0] else []  # else that of the image
    for part in [p for key in ("command", "args") for c in chosen[:1] for p in c.part(key).parts()]:
        text = str(part.read())
        word = _PLACE.sub(lambda m: f"{{{references.get(m[1], OPEN) if m[1] else m[0]}}}", text)
        if "${" in word or f"{{{OPEN}}}" in word:
            draft.note(part.line, f"{text} of the command is not translated; fill it in")
            word = OPEN
        words.append(word)
    if chosen and primary in (None, chosen[0].part("name").raw):
        template.get("primaryContainerName", str), chosen[0].get("name", str)
    draft.set("command", words or OPEN)


def _containers(part: YamlPart) -> list[YamlPart]:
    """The containers at any depth: Jobs, PyTorchJobs and others have them in different places."""
    own = part.part("containers").parts()
    return own or [found for inner in part.parts() for found in _containers(inner)]
