"""Reads the study that a script makes for its Optuna objective."""

from __future__ import annotations

import ast
from typing import Any

from search_spaces.loading.sweep_file import OPEN
from search_spaces.nested import nested
from trainables.user_code.python_source.python_file import UNREAD
from tuning.translation.arguments import CallArguments
from tuning.translation.script import Script

_METRIC, _TRIALS = "value", 16
Table = dict[str, tuple[str, dict[str, Any]]]
SAMPLERS: Table = {
    "TPESampler": (
        "tpe",
        {"n_startup_trials": None, "multivariate": True, "constant_liar": True},
    ),
    "CmaEsSampler": ("cmaes", {"n_startup_trials": 1}),
    "GPSampler": ("gp", {"n_startup_trials": None}),
    "RandomSampler": ("random", {}),
    "NSGAIISampler": ("nsga2", {"population_size": 50}),
    "NSGAIIISampler": ("nsga3", {"population_size": 50}),
}
"""Optuna's samplers: the name here, and the arguments that are translated beside the seed, with
their defaults there where those here differ."""
PRUNERS: Table = {
    "NopPruner": ("none", {}),
    "MedianPruner": ("median", {}),
    "SuccessiveHalvingPruner": ("asha", {"min_resource": "auto", "reduction_factor": 4}),
    "HyperbandPruner": (
        "hyperband",
        {"min_resource": None, "max_resource": "auto", "reduction_factor": None},
    ),
}
"""Likewise of its pruners."""
RENAMED = {
    "n_startup_trials": "startup_trials",
    "population_size": "population",
    "min_resource": "grace_period",
    "max_resource": "max_t",
}
_OF_A_STUDY = {"enqueue_trial", "add_trial", "add_trials", "ask", "tell", "set_metric_names"}


def read_study(script: Script, function: str) -> None:
    """Fill a draft with what the script says of the study that optimizes an objective."""
    draft = script.draft
    draft.set("metric", _METRIC)  # an objective returns its value without a name
    calls = [call for call in script.calls() if _method(call) == "optimize"]
    if not calls and not any(script.name(c.func).endswith("_study") for c in script.calls()):
        draft.set("mode", "min")
        draft.set("budget.trials", _TRIALS)
        draft.note(None, f"has no study: the direction minimize and {_TRIALS} trials are guesses")
        return
    own = [call for call in calls if _optimizes(call, function)] or calls
    if len(own) == 1 and isinstance(own[0].func, ast.Attribute):
        _Study(script, own[0], own[0].func.value, function).translate()
        return
    for call in own:
        script.note(call, f"{ast.unparse(call)}, one of several searches,")
    for call in _calls_of_a_study(script):
        script.note(call)
    for path in ("mode", "budget.trials", "search.name", "scheduler.name"):
        draft.set(path, OPEN)


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _calls_of_a_study(script: Script) -> list[ast.Call]:
    return [call for call in script.calls() if _method(call) in _OF_A_STUDY]


def _optimizes(call: ast.Call, function: str) -> bool:
    given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "func")]
    return any(isinstance(node, ast.Name) and node.id == function for node in given)


class _Study:
    def __init__(self, script: Script, optimize: ast.Call, study: ast.expr, function: str) -> None:
        self._script, self._draft, self._optimize = script, script.draft, optimize
        self._made = script.value(study)
        self._given = CallArguments(script, study)
        self._is_new = self._given.name == "create_study"
        self._function = function

    def translate(self) -> None:
        """Fill the draft."""
        if not self._is_new:
            text = f"{ast.unparse(self._made or self._optimize)}, which is no new study,"
            self._draft.note(self._given.line, f"{text} is not translated")
        self._direction()
        self._sampler()
        self._pruner()
        self._limits()
        for call in _calls_of_a_study(self._script):
            if not self._add(call):
                self._script.note(call)

    def _direction(self) -> None:
        node = self._script.value(self._given.node("direction", "directions"))
        if isinstance(node, ast.List | ast.Tuple) and len(node.elts) == 1:
            node = self._script.value(node.elts[0])
        if node is None and self._is_new:
            self._draft.set("mode", "min")  # Optuna's default
            return
        name = self._script.name(node) if isinstance(node, ast.Attribute) else ""
        direction = name.rpartition(".")[2] if "StudyDirection." in name else ""
        text = f"the direction of the study ({ast.unparse(node) if node else 'unknown'})"
        goal = direction.lower() or self._script.literal(node)
        self._draft.set_mode(self._given.line, text, goal)

    def _sampler(self) -> None:
        given = CallArguments(self._script, self._given.node("sampler"))
        if self._put(given, SAMPLERS, given.name or self._default("TPESampler", given), "search"):
            given.put("seed", "seed")

    def _default(self, name: str, given: CallArguments) -> str:
        """What a new study takes if nothing is given."""
        return name if self._is_new and not given else ""

    def _put(self, given: CallArguments, table: Table, called: str, section: str) -> str:
        """Set a section by a table; returns the name there, which is empty if it has none."""
        name, defaults = table.get(called, ("", {}))
        self._draft.set(f"{section}.name", name or OPEN)
        if not name:
            kind = {"search": "sampler", "scheduler": "pruner"}[section]
            text = f"the {kind} {called} is not translated; fill in {section}.name"
            self._draft.note(given.line or self._given.line, text)
        for key, default in defaults.items():
            given.put(key, f"{section}.{RENAMED.get(key, key)}", default)
        return name

    def _pruner(self) -> None:
        given = CallArguments(self._script, self._given.node("pruner"))
        calls = self._script.calls()
        callbacks = [c for c in calls if "PruningCallback" in self._script.name(c.func)]
        if not callbacks and not any(_method(call) == "should_prune" for call in calls):
            if given.name:
                text = f"the pruner {given.name}: should_prune is never asked"
                self._draft.note(given.line, text)
            return
        called = given.name or self._default("MedianPruner", given)
        name = self._put(given, PRUNERS, called, "scheduler")
        scheduler = self._draft.keys["scheduler"]
        if name == "median":
            warmup = given.get("n_warmup_steps", 0)
            self._draft.set(
                "scheduler.grace_period", max(1, warmup) if isinstance(warmup, int) else OPEN
            )
            text = f"the pruner {called}: the scheduler median compares with averages of others"
            self._draft.note(given.line or self._given.line, text)
        elif name in ("asha", "hyperband"):
            auto = {key for key, value in scheduler.items() if value == "auto"}
            for key in auto | ({"max_t"} - scheduler.keys()):
                self._draft.open(given.line, f"{called} without {key}", f"scheduler.{key}")

    def _limits(self) -> None:
        given = CallArguments(
            self._script, self._optimize, "func", "n_trials", "timeout", "n_jobs", "catch"
        )
        func = given.node("func")
        if func is not None and not _optimizes(self._optimize, self._function):
            self._script.note(func, f"optimize({ast.unparse(func)}), not {self._function} itself,")
        trials, jobs = given.get("n_trials"), given.get("n_jobs", 1)
        given.put("timeout", "budget.time")
        self._draft.set("budget.trials", OPEN if trials is UNREAD else trials)
        if jobs != -1:
            self._draft.set("resources.concurrency", OPEN if jobs is UNREAD else jobs)
        line = self._optimize.lineno
        if not self._script.is_certain(self._optimize):
            self._draft.open(line, "optimize in a branch or a loop", "budget.trials")
        elif "budget" not in self._draft.keys:
            self._draft.open(line, "optimize without n_trials and timeout", "budget.trials")

    def _add(self, call: ast.Call) -> bool:
        """Whether a call of a method of the study is translated."""
        study = self._script.value(call.func.value)  # type: ignore[attr-defined]  # as _method
        given = self._script.literal(call.args[0] if len(call.args) == 1 else None)
        is_own = study is self._made and self._script.is_certain(call) and not call.keywords
        if is_own and _method(call) == "enqueue_trial" and isinstance(given, dict):
            self._draft.keys.setdefault("points", []).append(nested(given))
            return True
        if is_own and _method(call) == "set_metric_names" and isinstance(given, list):
            self._draft.set("metric", given[0] if len(given) == 1 else OPEN)
            return len(given) == 1
        return False
