"""Translates a script for Ray Tune: what it gives to `tune.Tuner` or `tune.run`, never executed."""

from __future__ import annotations

import ast
from typing import Any

from search_spaces.domains.domain import KINDS, LISTS, arguments
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import OPEN
from search_spaces.nested import nested
from trainables.user_code.python_source.python_file import UNREAD
from tuning.translation.arguments import CallArguments
from tuning.translation.script import Script

_ITERATION = "training_iteration"
_SECONDS = "time_total_s"
_ASHA = {"time_attr": _ITERATION, "max_t": 100, "grace_period": None, "reduction_factor": 4}
_PBT = {"time_attr": _SECONDS, "perturbation_interval": 60, "quantile_fraction": None}
SCHEDULERS: dict[str, tuple[str, dict[str, Any]]] = {
    "ASHAScheduler": ("asha", _ASHA),
    "AsyncHyperBandScheduler": ("asha", _ASHA),
    "HyperBandScheduler": (
        "hyperband",
        {"time_attr": _ITERATION, "max_t": 81, "reduction_factor": None},
    ),
    "MedianStoppingRule": ("median", {"time_attr": _SECONDS, "grace_period": 60}),
    "PopulationBasedTraining": ("pbt", _PBT | {"resample_probability": None}),
    "PB2": ("pb2", _PBT),
    "FIFOScheduler": ("none", {}),
}
"""Ray Tune's schedulers: the name here, and the arguments that are translated, with their defaults
there where those here differ."""
RENAMED = {
    "perturbation_interval": "interval",
    "quantile_fraction": "quantile",
    "resample_probability": "resample",
}
_MUTATIONS = ("hyperparam_mutations", "hyperparam_bounds")
SEARCHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "OptunaSearch": ("tpe", {"seed": None}),
    "HyperOptSearch": ("tpe", {"n_initial_points": 20, "random_state_seed": None}),
    "BayesOptSearch": ("gp", {"random_search_steps": None, "random_state": None}),
    "AxSearch": ("gp", {}),
    "BasicVariantGenerator": ("random", {"max_concurrent": None, "random_state": None}),
}
"""Likewise of its searchers."""
_SEARCHER_KEYS = {
    "seed": "seed",
    "random_state_seed": "seed",
    "random_state": "seed",
    "n_initial_points": "search.startup_trials",
    "random_search_steps": "search.startup_trials",
    "max_concurrent": "resources.concurrency",
}


def translate(script: Script) -> None:
    """Fill a draft from a script.

    Raises:
        UserError: the script calls neither `tune.Tuner` nor `tune.run`.
    """
    if not (found := _searches(script)):
        raise UserError(
            f"{script.draft.source}: calls neither tune.Tuner nor tune.run; an objective for "
            f"Optuna is named too: {script.draft.source.name}:objective"
        )
    for other in found[1:]:
        script.note(other, f"a second search, {ast.unparse(other)},")
    _Search(script, found[0]).translate()


def searches(script: Script, target: str) -> bool:
    """Whether the first search of a script is one over this function or class of the file."""
    calls = _searches(script)[:1]
    given = [a for call in calls for a in call.args[:1]]
    given += [k.value for call in calls for k in call.keywords if k.arg == "trainable"]
    names = (node.id for a in given for node in ast.walk(a) if isinstance(node, ast.Name))
    return target in names


def _searches(script: Script) -> list[ast.Call]:
    names = ((call, script.name(call.func).rpartition(".")) for call in script.calls())
    return [c for c, (p, _, n) in names if p.startswith("ray.tune") and n in ("Tuner", "run")]


class _Search:
    def __init__(self, script: Script, call: ast.Call) -> None:
        self._script, self._draft, self._call = script, script.draft, call
        self._main = CallArguments(script, call, "trainable")
        self._tune = CallArguments(script, self._main.node("tune_config"))
        self._run = CallArguments(script, self._main.node("run_config"))
        if script.name(call.func).endswith(".run"):
            self._tune = self._run = self._main
        self._objectives = [self._tune]

    def translate(self) -> None:
        self._draft.set("trainable", self._trainable())
        space = self._main.node("param_space", "config")
        self._space(space, "")
        if space is None:
            self._draft.note(self._call.lineno, "a search without param_space is not translated")
            self._draft.space[OPEN] = OPEN
        self._searcher(self._tune.node("search_alg"))
        self._scheduler(self._tune.node("scheduler"))
        self._objective("metric")
        self._objective("mode")
        self._budget()

    def _trainable(self) -> str:
        node = self._main.node("trainable", "run_or_experiment")
        node = self._script.value(node)
        if isinstance(node, ast.Call) and self._script.name(node.func).endswith("with_resources"):
            self._script.note(node)
            node = self._script.value(node.args[0]) if node.args else None
        if isinstance(node, ast.Name):
            if (found := self._script.definition(node)) is not None:
                self._script.read(found)
                if found in self._script.tree.body:
                    return f"{self._draft.source}:{node.id}"
            module, _, function = self._script.import_of(node).rpartition(".")
            if module:
                return f"{module}:{function}"
        shown = ast.unparse(node) if node is not None else "a search without trainable"
        self._script.note(node or self._call, f"{shown}, which is no function of a file,")
        return OPEN

    def _space(self, node: ast.expr | None, prefix: str) -> None:
        found: dict[str, ast.expr] = {}
        for key, value in self._script.entries(node):
            if key is None or "." in key:  # a group is another thing than a key with a dot
                self._script.note(value, f"{key or 'the space'}: {ast.unparse(value)}")
                self._draft.space[OPEN] = OPEN
            else:
                found[key] = value
        for key, value in found.items():
            self._parameter(f"{prefix}{key}", value)

    def _parameter(self, name: str, value: ast.expr) -> None:
        node, line = self._script.value(value), value.lineno
        if isinstance(node, ast.Dict) and node.keys:
            self._space(value, f"{name}.")
        elif (domain := self._domain(node)) is not None:
            self._draft.add(line, name, domain)
        elif (constant := self._script.literal(value)) is not UNREAD:
            self._draft.fix(line, name, constant)
        else:
            self._script.note(value, f"{name}: {ast.unparse(value)}")
            self._draft.add(line, name, OPEN)

    def _domain(self, node: ast.expr | None) -> dict[str, Any] | None:
        if not isinstance(node, ast.Call) or not self._script.name(node.func).startswith("ray."):
            return None
        kind = self._script.name(node.func).rpartition(".")[2]
        if kind not in KINDS:
            return None
        values = [self._script.literal(arg) for arg in node.args]
        given = dict(zip(arguments(kind), values, strict=False))
        given |= {str(k.arg): self._script.literal(k.value) for k in node.keywords}
        if UNREAD in given.values() or len(values) > len(arguments(kind)):
            return None
        self._script.read(node)
        if kind in LISTS:
            return {kind: list(given[LISTS[kind]])} if LISTS[kind] in given else None
        if kind.endswith("randint") and given.get("q", 1) == 1:
            kind = kind.removeprefix("q")
            given.pop("q", None)
        names = arguments(kind)[: len(given)]
        return {kind: [given[n] for n in names] if given.keys() == set(names) else given}

    def _searcher(self, node: ast.expr | None) -> None:
        given = CallArguments(self._script, node)
        if given.name == "ConcurrencyLimiter":
            given = CallArguments(self._script, node, "searcher", "max_concurrent")
            given.put("max_concurrent", "resources.concurrency")
            given = CallArguments(self._script, given.node("searcher"))
        self._objectives.append(given)
        name, defaults = OPEN, dict[str, Any]()
        if given.name in SEARCHERS or not given:
            name, defaults = SEARCHERS[given.name or "BasicVariantGenerator"]
        elif given.name:
            self._draft.note(given.line, f"the searcher {given.name} is not translated")
        self._draft.set("search.name", name)
        for key, default in defaults.items():
            given.put(key, _SEARCHER_KEYS[key], default)
        points = given.get("points_to_evaluate") if name != OPEN else None
        if points is not None and points is not UNREAD:
            is_list = isinstance(points, list) and all(isinstance(point, dict) for point in points)
            self._draft.set("points", [nested(point) for point in points] if is_list else OPEN)

    def _scheduler(self, node: ast.expr | None) -> None:
        given, draft = CallArguments(self._script, node), self._draft
        self._objectives.append(given)
        name, defaults = SCHEDULERS.get(given.name, (OPEN, {})) if given else ("none", {})
        time_attr = given.get("time_attr", defaults["time_attr"]) if defaults else _ITERATION
        if time_attr is UNREAD or time_attr == _SECONDS:
            name = OPEN
        draft.set("scheduler", {"name": name})
        if name == OPEN and given.name:
            by = f", by {_SECONDS}," if time_attr == _SECONDS else ""
            draft.note(given.line, f"the scheduler {given.name}{by} is not translated")
        elif name != OPEN and time_attr != _ITERATION:  # else a step
            draft.set("scheduler.time_attr", time_attr)
        for key, default in defaults.items() if name != OPEN else ():
            if key != "time_attr":
                given.put(key, f"scheduler.{RENAMED.get(key, key)}", default)
        if name in ("pbt", "pb2"):
            self._mutations(given)
        self._stop()

    def _mutations(self, given: CallArguments) -> None:
        """The parameters that change. The values that they take then are those of the space."""
        node = given.node(*_MUTATIONS)
        found = list(self._script.entries(node))
        if node is not None:
            self._script.note(node, f"the values in {ast.unparse(node)}")
        names = [key for key, _ in found if key in self._draft.space]
        self._draft.set("scheduler.mutate", (names if len(names) == len(found) else OPEN) or None)

    def _stop(self) -> None:
        """What ends a trial: a step, or what has no key here."""
        given, scheduler = self._run.get("stop"), self._draft.keys["scheduler"]
        known = [scheduler["max_t"]] if isinstance(scheduler.get("max_t"), int) else []
        if given is UNREAD:
            self._draft.set("scheduler.max_t", OPEN)
        elif given is not None:
            is_step = isinstance(given, dict) and "time_attr" not in scheduler
            most = given.pop(_ITERATION, None) if is_step else None
            if scheduler.get("max_t") != OPEN and isinstance(most, int):
                self._draft.set("scheduler.max_t", min([most, *known]))
            elif most is not None:
                self._draft.set("scheduler.max_t", OPEN)
            if given:
                where = self._run.node("stop")
                self._draft.note(getattr(where, "lineno", None), f"stop={given} is not translated")
        if scheduler["name"] in ("pbt", "pb2") and "max_t" not in scheduler:
            text = "a search without a number of iterations"
            self._draft.open(self._call.lineno, text, "scheduler.max_t")

    def _objective(self, key: str) -> None:
        """`metric` or `mode`: of the search, its scheduler or its searcher, which must agree."""
        given = [found for part in self._objectives if (found := part.get(key)) is not None]
        found = [value for value in given if value is not UNREAD]
        if found and all(value == found[0] for value in found):
            self._draft.set(key, found[0])
            return
        self._draft.open(self._call.lineno, f"{key} of the search ({found or 'not given'})", key)
        for call in self._script.calls():
            if self._script.name(call.func).rpartition(".")[2].startswith("get_best_"):
                self._script.note(call)

    def _budget(self) -> None:
        self._tune.put("max_concurrent_trials", "resources.concurrency")
        self._tune.put("time_budget_s", "budget.time")
        samples, grid = self._tune.get("num_samples", 1), self._draft.grid_size()
        if not isinstance(samples, int):
            self._draft.set("budget.trials", OPEN)
        elif samples == -1:
            if "time" not in self._draft.keys.get("budget", {}):
                self._draft.open(self._call.lineno, "num_samples=-1", "budget.trials")
        elif self._draft.is_grid():
            if samples != 1:
                text = f"num_samples={samples} repeats each point; see replicates"
                self._draft.note(self._call.lineno, text)
        else:
            self._draft.set("budget.trials", samples * grid)
