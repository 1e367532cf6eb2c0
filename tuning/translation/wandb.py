"""Translates a sweep of Weights & Biases.

The keys are those of https://docs.wandb.ai/guides/sweeps/sweep-config-keys.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Any

from search_spaces.domains.normal import multiple_of
from search_spaces.errors import UserError, suggest
from search_spaces.loading.sweep_file import OPEN
from search_spaces.spec.command import NAME, template_names
from tuning.translation.domains import between
from tuning.translation.draft import Draft
from tuning.translation.yaml_part import YamlPart

_SEARCHERS = {"bayes": "gp", "grid": "grid", "random": "random"}
_DEFAULT_COMMAND = ["${env}", "${interpreter}", "${program}", "${args}"]
_REPORTS = "the program must take its parameters as arguments, not from wandb.config, and report {}"


def is_sweep(file: YamlPart) -> bool:
    """Whether a file has what every sweep configuration has, and nothing else."""
    return "method" in file and isinstance(file.part("parameters").raw, dict)


def translate(draft: Draft, file: YamlPart) -> None:
    """Fill a draft from a sweep configuration.

    Raises:
        UserError: W&B has no such method.
    """
    method = file.get("method", str)
    if method not in _SEARCHERS:
        part = file.part("method")
        raise UserError(f"{draft.source}:{part.line}: {part}{suggest(str(method), _SEARCHERS)}")
    draft.set("search.name", _SEARCHERS[method])
    _metric(draft, file.part("metric"))
    parameters = _SweepParameters(draft)
    parameters.add(file.part("parameters"))
    _command(draft, file, parameters)
    trials = file.get("run_cap", int)
    draft.set("budget.trials", trials)
    if trials is None and method != "grid":
        draft.open(
            file.line, "a sweep without run_cap, which ends when it is stopped,", "budget.trials"
        )
    _early_terminate(draft, file.part("early_terminate"))


def _metric(draft: Draft, metric: YamlPart) -> None:
    name, goal = metric.get("name", str), metric.get("goal", str)
    if name is None:
        draft.open(metric.line, "a sweep without metric.name", "metric")
    else:
        draft.set("metric", name)
        draft.note(metric.line, _REPORTS.format(f"{name}: see docs/commands.md, Reports"))
    if goal is None and name is not None and "goal" not in metric:
        goal = "minimize"  # W&B's default
    draft.set_mode(metric.line, f"metric.goal: {goal}", goal)
    draft.set("budget.target", metric.number("target"))


class _SweepParameters:
    """Adds the parameters to a draft.

    Attributes:
        names: dotted names of all parameters.
        has_booleans: whether a value is one.
    """

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.names: list[str] = []
        self.has_booleans = self._has_groups = self._has_texts = False

    def add(self, group: YamlPart, prefix: str = "") -> None:
        """Add the parameters of a mapping."""
        for part in group.parts():
            name = f"{prefix}{part.name}"
            if isinstance(part.part("parameters").raw, dict):
                if not self._has_groups:
                    text = (
                        f"W&B gives --{name} a mapping; here each of its parameters has an argument"
                    )
                    self._draft.note(part.line, text)
                self._has_groups = True
                self.add(part.part("parameters"), f"{name}.")
                continue
            self.names.append(name)
            if "value" in part and part.part("distribution").raw in (None, "constant"):
                part.get("distribution", str)
                self._draft.fix(part.line, name, self._given(part, part.part("value").read()))
            elif (domain := self._domain(part)) is not None:
                self._draft.add(part.line, name, domain)
            else:
                part.read()
                self._draft.note(part.line, f"{part} is not translated")
                self._draft.add(part.line, name, OPEN)

    def _given(self, part: YamlPart, value: Any) -> Any:
        """A value as the text that `${args}` has, where `{args}` has another one."""
        self.has_booleans |= isinstance(value, bool)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            return value
        if not self._has_texts:
            text = "true, null and lists are given as Python's texts, like True, as W&B gives them"
            self._draft.note(part.line, text)
        self._has_texts = True
        return str(value)

    def _domain(self, part: YamlPart) -> dict[str, Any] | None:
        kind = str(part.get("distribution", str) or "")
        if "values" in part:
            return self._choice(part, kind)
        if kind in ("normal", "q_normal"):
            mean, sd = (part.number(k) if k in part else d for k, d in (("mu", 0), ("sigma", 1)))
            q = part.number("q") if "q" in part else 1
            return {"qrandn": [mean, sd, q]} if kind == "q_normal" else {"randn": [mean, sd]}
        low, high = part.number("min"), part.number("max")
        return None if low is None or high is None else _interval(part, kind, low, high)

    def _choice(self, part: YamlPart, kind: str) -> dict[str, Any] | None:
        values = part.get("values", list)
        if values is None or kind not in ("", "categorical", "categorical_w_probabilities"):
            return None
        if "probabilities" in part:
            text = f"{part.part('probabilities')}: all values are equally likely here"
            self._draft.note(part.line, text)
            part.part("probabilities").read()
        return {"choice": [self._given(part, value) for value in values]}


def _interval(part: YamlPart, kind: str, low: float, high: float) -> dict[str, Any] | None:
    """The domain of a distribution with bounds; a quantised one rounds to multiples of q."""
    is_whole = isinstance(low, int) and isinstance(high, int)
    if kind == "int_uniform" or (not kind and is_whole):
        return between(low, high) if is_whole else None
    if kind in ("log_uniform", "q_log_uniform"):
        low, high = math.exp(low), math.exp(high)
    log = kind.startswith(("log_uniform", "q_log_uniform"))
    if kind in ("", "uniform", "log_uniform", "log_uniform_values"):
        return between(float(low), float(high), log=log)
    if kind not in ("q_uniform", "q_log_uniform", "q_log_uniform_values"):
        return None
    q = part.number("q") if "q" in part else 1
    if q is None or q <= 0:
        return None
    first, last = (round(bound / q) for bound in (low, high))
    if isinstance(q, int):
        return between(first * q, last * q, q, log=log)
    return between(multiple_of(q, first), multiple_of(q, last), q, log=log)


def _command(draft: Draft, file: YamlPart, parameters: _SweepParameters) -> None:
    given = file.part("command")
    words = given.read() if given.raw is not None else _DEFAULT_COMMAND
    command: list[str] = []
    for word in shlex.split(words) if isinstance(words, str) else words:
        found = _words(str(word), file, parameters)
        if OPEN in found:
            draft.note(given.line, f"{word} of the command is not translated; fill it in")
        command += found
    draft.set("command", command or OPEN)


def _words(word: str, file: YamlPart, parameters: _SweepParameters) -> list[str]:
    """What stands for a word of the command; `OPEN` for one that is not known."""
    if word == "${env}":
        return []
    if word == "${interpreter}":
        return ["python"]
    if word == "${program}":
        return [file.get("program", str) or OPEN]
    if word == "${args}" or (word == "${args_no_boolean_flags}" and not parameters.has_booleans):
        return ["{args}"]
    if word == "${args_no_hyphens}":
        found = [f"{name}={{{name}}}" for name in parameters.names]
        return found if len(template_names(found)) == len(found) else [OPEN]
    return [OPEN] if "${" in word else [escaped(word)]


def escaped(word: str) -> str:
    """A word of a command in which braces stand for themselves."""
    return re.sub(rf"\{{({NAME})\}}", r"{{\1}}", word)


def _early_terminate(draft: Draft, stop: YamlPart) -> None:
    if stop.raw is None:
        return
    if stop.get("type", str) != "hyperband":
        draft.open(stop.line, str(stop), "scheduler.name")
        stop.read()
        return
    eta = stop.number("eta") if "eta" in stop else 3
    first, last = stop.number("min_iter"), stop.number("max_iter")
    draft.set("scheduler", {"name": "asha", "grace_period": first, "max_t": last})
    draft.set("scheduler.reduction_factor", eta or OPEN)
    if last is None:
        text = "early_terminate without max_iter, the reports of a whole run,"
        draft.open(stop.line, text, "scheduler.max_t")
    if first is None:
        rungs = stop.get("s", int)
        if rungs is None or last is None or not eta:
            draft.open(stop.line, "early_terminate without min_iter", "scheduler.grace_period")
        else:
            draft.set("scheduler.grace_period", max(1, int(last / eta**rungs)))
