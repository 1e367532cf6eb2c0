"""Translates a script for Ray Tune: what it gives to `tune.Tuner` or `tune.run`, never executed."""

from __future__ import annotations

import ast
from typing import Any

from search_spaces.domains.domain import KINDS, LISTS
from search_spaces.errors import UserError
from trainables.user_code.syntax import full_name, imported_names
from tuning.translation.draft import Draft

_SCHEDULERS = {
    "ASHAScheduler": "asha",
    "AsyncHyperBandScheduler": "asha",
    "HyperBandScheduler": "hyperband",
    "MedianStoppingRule": "median",
    "PopulationBasedTraining": "pbt",
    "PB2": "pb2",
    "FIFOScheduler": "none",
}
_SCHEDULER_KEYS = {
    "time_attr": "time_attr",
    "max_t": "max_t",
    "grace_period": "grace_period",
    "reduction_factor": "reduction_factor",
    "perturbation_interval": "interval",
    "quantile_fraction": "quantile",
    "resample_probability": "resample",
}
_DEFAULTS = {"asha": {"max_t": 100}, "hyperband": {"max_t": 81}, "pbt": {}, "pb2": {}}
_SEARCHERS = {
    "OptunaSearch": "tpe",
    "HyperOptSearch": "tpe",
    "BayesOptSearch": "gp",
    "AxSearch": "gp",
    "BasicVariantGenerator": "random",
}
_WRAPPERS = ("with_parameters", "with_resources")


def translate(draft: Draft, tree: ast.Module) -> None:
    """Fill a draft from a script.

    Raises:
        UserError: the script calls neither `tune.Tuner` nor `tune.run`.
    """
    _Script(draft, tree).translate()


class _Script:
    def __init__(self, draft: Draft, tree: ast.Module) -> None:
        self._draft, self._tree, self._aliases = draft, tree, imported_names(tree)
        self._bound: dict[str, ast.expr] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._bound[node.targets[0].id] = node.value

    def translate(self) -> None:
        calls = [n for n in ast.walk(self._tree) if isinstance(n, ast.Call)]
        found = [c for c in calls if self._name(c.func) in ("ray.tune.Tuner", "ray.tune.run")]
        if not found:
            raise UserError(f"{self._draft.source}: calls neither tune.Tuner nor tune.run")
        call, draft = found[0], self._draft
        if len(found) > 1:
            draft.note(found[1].lineno, "is a second search, which is not translated")
        given = self._keywords(call)
        given |= self._inner(given.get("tune_config")) | self._inner(given.get("run_config"))
        draft.code = {"trainable": self._trainable(call.args[0] if call.args else None, call)}
        space = self._value(given.get("param_space") or given.get("config"))
        if isinstance(space, ast.Dict):
            self._space(space, draft.space, draft.fixed)
        draft.metric = self._literal(given.get("metric")) or draft.metric
        draft.mode = self._literal(given.get("mode")) or draft.mode
        self._scheduler(self._value(given.get("scheduler")), given)
        searcher = self._value(given.get("search_alg"))
        if isinstance(searcher, ast.Call):
            name = self._name(searcher.func).rpartition(".")[2]
            draft.set("search", name=_SEARCHERS.get(name))
            if name not in _SEARCHERS:
                draft.note(searcher.lineno, f"the searcher {name} is not translated")
        if "grid_search" not in repr(draft.space):  # else it is a number of repetitions
            draft.set("budget", trials=self._literal(given.get("num_samples")))
        draft.set("resources", concurrency=self._literal(given.get("max_concurrent_trials")))

    def _trainable(self, node: ast.expr | None, call: ast.Call) -> str:
        node = self._value(node)
        while isinstance(node, ast.Call) and node.args:
            if self._name(node.func).rpartition(".")[2] not in _WRAPPERS:
                break
            self._draft.note(node.lineno, f"{ast.unparse(node)[:80]} is not translated")
            node = self._value(node.args[0])
        name = ast.unparse(node) if isinstance(node, ast.Name) else ""
        module, _, function = self._aliases.get(name, "").rpartition(".")
        if module:
            return f"{module}:{function}"
        if not name:
            self._draft.note(call.lineno, "what it tunes is no function or class of the script")
        return f"{self._draft.source}:{name or 'train'}"

    def _space(self, node: ast.Dict, space: dict[str, Any], fixed: dict[str, Any]) -> None:
        for key, value in zip(node.keys, node.values, strict=True):
            name, found = self._literal(key), self._value(value)
            if not isinstance(name, str):
                self._draft.note(value.lineno, f"{ast.unparse(value)[:80]} is not translated")
            elif isinstance(found, ast.Dict) and found.keys:
                parts: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
                self._space(found, *parts)
                for target, part in zip((space, fixed), parts, strict=True):
                    target.update({name: part} if part else {})
            elif (domain := self._domain(found)) is not None:
                space[name] = domain
            elif (constant := self._literal(found)) is not None:
                fixed[name] = constant
            else:
                text = f"{name}: {ast.unparse(value)[:80]} is not translated"
                self._draft.note(value.lineno, text)

    def _domain(self, node: ast.expr | None) -> dict[str, Any] | None:
        if not isinstance(node, ast.Call):
            return None
        kind = self._name(node.func).rpartition(".")[2]
        values = [self._literal(arg) for arg in node.args]
        named = {k.arg: self._literal(k.value) for k in node.keywords}
        if kind not in KINDS or None in values or None in named.values() or (values and named):
            return None
        if kind in LISTS:
            return {kind: [*values, *named.values()][0]}
        return {kind: named or values}

    def _scheduler(self, node: ast.expr | None, given: dict[str, ast.expr]) -> None:
        draft = self._draft
        stop = self._literal(given.get("stop"))
        most = stop.get("training_iteration") if isinstance(stop, dict) else None
        if stop is not None and most is None and (where := given.get("stop")):
            draft.note(where.lineno, f"stop={stop} is not translated; see budget and max_t")
        if not isinstance(node, ast.Call):
            draft.set("scheduler", name="none", max_t=most)
            return
        kind = _SCHEDULERS.get(called := self._name(node.func).rpartition(".")[2])
        if kind is None:
            draft.note(node.lineno, f"the scheduler {called} is not translated")
            draft.set("scheduler", name="none", max_t=most)
            return
        keys = self._keywords(node)
        for name in ("metric", "mode"):
            setattr(draft, name, self._literal(keys.pop(name, None)) or getattr(draft, name))
        known = {new: keys[old] for old, new in _SCHEDULER_KEYS.items() if old in keys}
        found = {**_DEFAULTS.get(kind, {}), **{k: self._literal(v) for k, v in known.items()}}
        if "max_t" not in found and kind in ("pbt", "pb2"):
            found["max_t"] = most or 100
            if most is None:
                draft.note(node.lineno, "max_t is a guess: steps of a complete trial")
        draft.set("scheduler", name=kind, **found)
        for key in keys.keys() - _SCHEDULER_KEYS.keys():
            draft.note(node.lineno, f"{called}({key}=…) is not translated")

    def _inner(self, node: ast.expr | None) -> dict[str, ast.expr]:
        """The arguments of `TuneConfig(…)` or `RunConfig(…)`."""
        found = self._value(node)
        return self._keywords(found) if isinstance(found, ast.Call) else {}

    def _keywords(self, call: ast.Call) -> dict[str, ast.expr]:
        return {k.arg: k.value for k in call.keywords if k.arg is not None}

    def _value(self, node: ast.expr | None) -> ast.expr | None:
        """What a name is bound to; of a function or class the name itself."""
        while isinstance(node, ast.Name) and node.id in self._bound:
            node = self._bound.get(node.id)
        return node

    def _literal(self, node: ast.expr | None) -> Any:
        """A plain value; None if it must be computed."""
        found = self._value(node)
        try:
            return None if found is None else ast.literal_eval(found)
        except (ValueError, TypeError):
            return None

    def _name(self, node: ast.expr) -> str:
        return full_name(node, self._aliases)
