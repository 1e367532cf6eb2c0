"""A sweep file from what training code reads and reports. The code is parsed, never run."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import OPEN
from search_spaces.nested import show
from trainables.user_code import loader
from trainables.user_code.command.arguments import script_parser
from trainables.user_code.offered import REFUSED
from trainables.user_code.optuna.source import read_objective
from trainables.user_code.parameters import KeyRead, keys_read
from trainables.user_code.python_source.project import Definition, Project
from trainables.user_code.python_source.python_file import UNREAD, PythonFile
from tuning.translation import optuna_source, ray_script
from tuning.translation.domains import choose_objective, domain_around, is_progress, known_domain
from tuning.translation.draft import Draft
from tuning.translation.reports import printed_metrics, reported_metrics, returned_metrics
from tuning.translation.script import Script

_TRIALS = 16
_CONFIGURATIONS = ("train_loop_config", "param_space")


def trainable_text(name: str, folder: Path) -> tuple[str, str]:
    """The name and the text of a sweep file for training code.

    Args:
        name: `script.py:function`, `module:function`, or `script.py`, whose options argparse reads.
        folder: of the sweep file.

    Raises:
        UserError: there is no such code, or nothing in it can be searched.
    """
    if not name.endswith(".py") and ":" not in name:
        raise UserError(
            f"--trainable {name}: needs script.py:function, module:function or script.py; "
            "`tune init` lists the examples of this program's own trainables"
        )
    file = loader.read(name if ":" in name else f"{name}:")
    target = "".join(name.rpartition(":")[1:] if ":" in name else "")
    draft = Draft(file.path, option="--trainable", target=target)
    if ":" not in name:
        script = name if Path(name).is_absolute() else os.path.relpath(file.path, folder)
        _Command(draft, file).translate(script)
    else:
        loader.find(name)
        draft.set("trainable", name)
        _translate_function(draft, file, name)
    draft.keys.setdefault("budget", {"trials": _TRIALS})
    return file.path.stem, draft.text()


def _translate_function(draft: Draft, file: PythonFile, name: str) -> None:
    target = name.rpartition(":")[2]
    objective = read_objective(name)
    if objective is not None:
        optuna_source.translate(Script(draft, file.tree), target, objective)
        return
    if ray_script.searches(script := Script(draft, file.tree), target):
        ray_script.translate(script)
        script.note_unread()
        draft.set("trainable", name)
        return
    project, found = Project(loader.root_of(name)), list[tuple[PythonFile, KeyRead]]()
    for function, config in _entries(project, file, target):
        found += _reads(project, function, config, {function.node})
    _Parameters(draft, file).add_reads(found)
    _set_objective(draft, [*reported_metrics(file), *_outputs(file, target)])


def _entries(project: Project, file: PythonFile, target: str) -> Iterator[tuple[Definition, str]]:
    """The functions that get the configuration, each with its name there."""
    if function := project.function(file, target):
        yield from ((function, config) for config in function.parameters[:1])
    for owner in (node for node in file.classes if node.name == target):
        for node in (n for n in owner.body if isinstance(n, ast.FunctionDef)):
            method = Definition(file, node, 1, owner)
            yield from ((method, config) for config in method.parameters if node.name == "setup")
            yield method, "self.config"


def _outputs(file: PythonFile, target: str) -> list[str]:
    own = [node for node in file.classes if node.name == target]
    functions = [n for c in own for n in c.body if isinstance(n, ast.FunctionDef)]
    functions = [n for n in functions if n.name == "step"]
    if function := file.function(target):
        functions.append(function)
    return [name for node in functions for name in returned_metrics(file, node)]


def _reads(
    project: Project, function: Definition, config: str, seen: set[ast.AST]
) -> Iterator[tuple[PythonFile, KeyRead]]:
    """What a function reads of its configuration, and what it calls with it."""
    for read in keys_read(function.file, function.body, config):
        inner = None if read.key is not None else _receiver(project, function, read.node)
        if inner is None:
            yield function.file, read
        elif inner[0].node not in seen:
            seen.add(inner[0].node)
            yield from _reads(project, *inner, seen)


def _receiver(
    project: Project, function: Definition, node: ast.expr
) -> tuple[Definition, str] | None:
    """The function that gets the configuration as it is, and its name there."""
    call = function.file.parents[node]
    if not isinstance(call, ast.Call) or node not in call.args:
        return None
    called = project.called(function.file, call.func, function.owner)
    names = called.parameters[call.args.index(node) :] if called else []
    return (called, names[0]) if called and names else None


class _Parameters:
    """Adds parameters to a draft, each with the place of the code that reads it."""

    def __init__(self, draft: Draft, file: PythonFile) -> None:
        self._draft, self._file = draft, file
        self._point: dict[str, Any] = {}

    def add_reads(self, reads: Iterable[tuple[PythonFile, KeyRead]]) -> None:
        """Add the keys that a function reads from its configuration."""
        given, defaults = self._given(), dict[str, tuple[str, Any, bool]]()
        for file, read in reads:
            place = f"{file.path.name}:{read.node.lineno}"
            if read.key is None:
                text = ast.unparse(file.parents[read.node])
                self._draft.notes.append(f"{place}: what {text} reads is not known")
                continue
            value = given.get(read.key, UNREAD)
            if value is UNREAD and read.default:
                value = file.literal(read.default)
            known = defaults.get(read.key)
            if known is None or (known[1] is UNREAD and value is not UNREAD):
                defaults[read.key] = place, value, read.is_required or read.key in given
        for name, (place, value, is_required) in defaults.items():
            if name != "seed":  # each trial gets its own
                self.add(name, place, value, is_required=is_required)
        self.write_point()

    def _given(self) -> dict[str, Any]:
        """Values that the file itself gives to the configuration."""
        keywords = (k for c in self._file.calls() for k in c.keywords if k.arg in _CONFIGURATIONS)
        pairs = [pair for keyword in keywords for pair in self._file.entries(keyword.value)]
        return {key: self._file.literal(value) for key, value in pairs if key is not None}

    def add(
        self, name: str, place: str, default: Any, *, is_required: bool, choices: Any = None
    ) -> None:
        """Add a parameter with a default, which is `UNREAD` if it has none or none that is read."""
        if isinstance(default, dict) and is_required:  # a group
            for key, value in default.items():
                self.add(f"{name}.{key}", place, value, is_required=True)
            return
        self._draft.remarks[name] = f"{place}: " + (
            "no default" if default is UNREAD else f"default {show(default)}"
        )
        domain = {"choice": [*choices]} if isinstance(choices, list | tuple) and choices else None
        if default is UNREAD:
            domain = domain or known_domain(name)
            if domain is None and not is_required:
                self._draft.notes.append(f"{place}: {name} is left out: no default is read")
                return
            self._draft.remarks[name] += (
                "" if domain else "; fill in a domain, or a value under fixed"
            )
            self._draft.add(None, name, domain or OPEN)
        elif (domain := domain or domain_around(name, default)) is not None:
            self._draft.add(None, name, domain)
            self._point[name] = default
        elif isinstance(default, bool | int | float | str) or is_required:
            self._draft.remarks[name] += "; not searched"
            self._draft.fix(None, name, default)
        else:
            self._draft.notes.append(f"{place}: {name} is left out: default {show(default)}")

    def write_point(self) -> None:
        """Let the search begin with the defaults."""
        self._draft.set("points", [self._point] if self._point else None)


class _Command:
    """A script with argparse as the command of a sweep."""

    def __init__(self, draft: Draft, file: PythonFile) -> None:
        self._draft, self._file = draft, file
        self._parameters = _Parameters(draft, file)
        self._words: list[str] = []
        self._uses_args = False

    def translate(self, script: str) -> None:
        """Fill the draft.

        Raises:
            UserError: the source does not show all arguments of the script.
        """
        parser = script_parser(self._file.path)
        if parser is None or not parser.calls:
            raise UserError(
                f"--trainable {self._file.path}: its options are not in one argparse parser that "
                "can be read; name a function (script.py:function), or write command by hand"
            )
        for action, call in parser.calls:
            given = {str(k.arg): k.value for k in call.keywords}
            place = f"{self._file.path.name}:{call.lineno}"
            if not action.option_strings:
                self._draft.notes.append(f"{place}: fill in the argument {action.dest} of command")
                self._words.append(OPEN)
            elif action.nargs is not None or action in parser.bools:
                why = "it does not take one value"
                if action in parser.bools:
                    why = f"its type=bool {REFUSED['command']['type=bool']}"
                option = action.option_strings[-1]
                self._draft.notes.append(f"{place}: {option} is left out: {why}")
            else:
                self._option(max(action.option_strings, key=len), place, given)
        args = ["{args}"] if self._uses_args else []
        self._draft.set("command", ["python", script, *args, *self._words])
        self._parameters.write_point()
        self._metrics()

    def _option(self, option: str, place: str, given: Mapping[str, ast.expr]) -> None:
        name = option.lstrip("-")
        if name == "seed":
            self._words += [option, "{seed}"]
            return
        default = self._file.literal(given["default"]) if "default" in given else UNREAD
        kind = ast.unparse(given["type"]) if "type" in given else "str"
        if kind == "float" and isinstance(default, int):
            default = float(default)
        choices = self._file.literal(given.get("choices"))
        if "choices" in given and choices is UNREAD:
            said = ast.unparse(given["choices"])
            self._draft.notes.append(f"{place}: the choices of {option}, {said}, are not read")
        is_required = self._file.literal(given.get("required")) is True
        self._parameters.add(name, place, default, is_required=is_required, choices=choices)
        if name in self._draft.space or name in self._draft.fixed:
            self._uses_args |= option.startswith("--")
            self._words += [] if option.startswith("--") else [option, f"{{{name}}}"]

    def _metrics(self) -> None:
        metrics = reported_metrics(self._file)
        if not metrics:
            prints = printed_metrics(self._file)
            metric = choose_objective([name for found in prints for name in found])[0]
            shown = next((found for found in prints if metric in found), {})
            shown = {name: text for name, text in shown.items() if not is_progress(name)}
            metrics = [*shown]
            self._draft.set("report_from.stdout", shown or None)
        _set_objective(self._draft, metrics)


def _set_objective(draft: Draft, metrics: list[str]) -> None:
    metric, mode = choose_objective(metrics)
    if metric is None:
        draft.open(None, "the metric, which no report shows,", "metric")
    draft.set("metric", metric)
    if mode is None:
        draft.open(None, f"whether less or more of {metric or 'it'} is better", "mode")
    draft.set("mode", mode)
    others = [name for name in dict.fromkeys(metrics) if name != metric and not is_progress(name)]
    if others:
        draft.note(None, f"reports {', '.join(others)} too")
