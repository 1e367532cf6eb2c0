"""Reads the space of an Optuna objective in its source; nothing is imported or called."""

from __future__ import annotations

import ast
from typing import Any

from search_spaces.loading.sweep_file import OPEN
from search_spaces.nested import walk
from trainables.user_code.optuna.source import Member, ObjectiveSource
from trainables.user_code.python_source.python_file import UNREAD, PythonFile
from tuning.translation.domains import between
from tuning.translation.draft import Draft
from tuning.translation.optuna_study import read_study
from tuning.translation.script import Script


def translate(script: Script, function: str, objective: ObjectiveSource) -> None:
    """Fill a draft with what an objective asks its trial for, and the study of its file."""
    draft = script.draft
    read_study(script, function)
    for member in objective.members:
        if member.suggests:
            _add_suggestion(draft, member)
    if objective.is_passed_on:
        draft.note(None, "code that is not known gets the trial; it may ask for more")


def _add_suggestion(draft: Draft, member: Member) -> None:
    name, domain = member.argument, None
    if name is None:
        draft.notes.append(f"{member.place}: {member.name} of a name that is computed; fill it in")
        draft.space[OPEN] = OPEN
        return
    if member.call is not None and member.file is not None:
        domain = _suggested(member.name.removeprefix("suggest_"), member.call, member.file)
    draft.remarks[name] = f"{member.place}{'' if member.always else ': in some branches only'}"
    if any(isinstance(part, tuple) for _, part in walk(domain)):
        draft.remarks[name] += ": its tuples are written as lists"
    if domain is None:
        draft.remarks[name] += ": its range is not known; fill in a domain"
    if name not in draft.space:
        draft.add(None, name, domain or OPEN)
    elif draft.space[name] != domain:
        draft.remarks[name] += ": another range than before; fill in a domain"
        draft.space[name] = OPEN


def _suggested(kind: str, call: ast.Call, file: PythonFile) -> dict[str, Any] | None:
    """The domain of a call of the trial; None if it is not certain."""
    names = ("name", "choices") if kind == "categorical" else ("name", "low", "high", "step")
    given = {name: file.literal(node) for name, node in zip(names, call.args, strict=False)}
    given |= {str(k.arg): file.literal(k.value) for k in call.keywords}
    if UNREAD in given.values():
        return None
    if kind == "categorical":
        choices = given.get("choices")
        return {"choice": [*choices]} if isinstance(choices, list | tuple) else None
    low, high, step = (given.get(key) for key in ("low", "high", "step"))
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    is_log = bool(given.get("log")) or kind == "loguniform"
    if kind == "int":
        return between(int(low), int(high), step, log=is_log)
    known = ("float", "uniform", "loguniform", "discrete_uniform")
    step = given.get("q", step) if kind == "discrete_uniform" else step
    return between(float(low), float(high), step, log=is_log) if kind in known else None
