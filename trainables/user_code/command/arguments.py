"""Compares the arguments of a command with what its Python script takes by argparse.

The script is only parsed: its `add_argument` calls make a parser here, which reads the command.
Where its source does not show everything, nothing is said.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from search_spaces.errors import suggest
from search_spaces.spec.command import ARGS, OPTION, template_names
from trainables.user_code.offered import REFUSED
from trainables.user_code.python_source.python_file import PythonFile, read_file

_PARSERS = ("argparse.ArgumentParser", "ArgumentParser")
_UNCLEAR = {"parse_known_args", "parse_known_intermixed_args", "add_subparsers"}
_UNCLEAR_KEYS = {"parents", "prefix_chars", "fromfile_prefix_chars"}
_NO_VALUE = {"store_true", "store_false", "store_const", "append_const", "count", "help", "version"}
_WITH_VALUE = {"store", "append", "extend"}
_LACKING = "the following arguments are required: "
_REFUSED = REFUSED["command"]
_READS_BOOL = "type=lambda text: text == 'true'"
_ALL = f"{{{ARGS}}}"


class _ParserError(Exception):
    """What argparse says of a command."""


class ScriptParser(argparse.ArgumentParser):
    """The parser of a script, whose arguments have neither types nor defaults.

    Attributes:
        options: by each of their names.
        required: options without which the script fails.
        bools: options of type `bool`, for which every text is true.
        calls: each of its arguments with the call that adds it.
    """

    def __init__(self) -> None:
        super().__init__(add_help=False)
        self.add_argument("-h", "--help", action="store_true")
        self.options: dict[str, argparse.Action] = {}
        self.required: list[argparse.Action] = []
        self.bools: list[argparse.Action] = []
        self.calls: list[tuple[argparse.Action, ast.Call]] = []

    def add(self, call: ast.Call) -> bool:
        """Add what a call of `add_argument` adds; False if its text does not show it."""
        keys = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
        texts = {k.arg: ast.unparse(k.value) for k in call.keywords}
        names = [str(a.value) for a in call.args if isinstance(a, ast.Constant)]
        is_computed = texts.keys() & {None, "nargs", "required"} - keys.keys()
        if not names or len(names) != len(call.args) or is_computed:
            return False
        given: dict[str, Any] = {"nargs": keys["nargs"]} if keys.get("nargs") is not None else {}
        action = keys.get("action", "store")
        if texts.get("action", "").endswith("BooleanOptionalAction"):
            given["action"] = argparse.BooleanOptionalAction
        elif "action" in texts and action not in _NO_VALUE | _WITH_VALUE:
            return False
        else:
            given["action"] = "store_true" if action in _NO_VALUE else action
        try:
            added = self.add_argument(*names, default=None, **given)
        except (ValueError, TypeError, argparse.ArgumentError):
            return False
        self.calls.append((added, call))
        self.options |= dict.fromkeys(added.option_strings, added)
        if added.option_strings and keys.get("required"):
            self.required.append(added)
        if added.option_strings and texts.get("type") == "bool":
            self.bools.append(added)
        return True

    def option(self, name: str) -> argparse.Action | None:
        """The option of a name, also of the beginning of one, as argparse has it."""
        begun = {self.options[n] for n in self.options if n.startswith(name)}
        return self.options.get(name) or (begun.pop() if len(begun) == 1 else None)

    def read(self, words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """Values of a command, and the positional arguments that it lacks.

        Raises:
            _ParserError: it has an unknown option, or another mistake.
        """
        given = argparse.Namespace()
        try:
            _, unknown = self.parse_known_args(words, given)
        except _ParserError as e:
            if lacking := str(e).partition(_LACKING)[2]:
                return given, [f"argument {name}" for name in lacking.split(", ")]
            raise
        names = (word.partition("=")[0] for word in unknown)
        if name := next(filter(OPTION.fullmatch, names), None):
            raise _ParserError(f"has no option {name}{suggest(name, self.options)}")
        if unknown:
            raise _ParserError(f"refuses it: unrecognized arguments: {' '.join(unknown)}")
        return given, []

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print; see the base class."""
        raise _ParserError(f"refuses it: {message}")


def argument_problems(
    command: Sequence[str], parameters: Sequence[str], always_true: Collection[str] = ()
) -> Iterator[tuple[str | None, str]]:
    """Options that the script does not have, and arguments that it lacks.

    Args:
        command: of the sweep file.
        parameters: names that `{args}` stands for.
        always_true: those whose only value is `true`.

    Yields:
        The parameter of a problem, or None if the command itself is wrong, and the problem.
    """
    scripts = [i for i, word in enumerate(command) if word.endswith(".py") and Path(word).is_file()]
    script = Path(command[scripts[0]]) if scripts else None
    parser = script_parser(script) if script else None
    if script is None or parser is None:
        return
    words, wrong = list(command[scripts[0] + 1 :]), dict[str, str]()
    if _ALL in words:
        wrong = dict(_problems_of_args(script.name, parser, parameters))
        joined = [f"--{name}={{{name}}}" for name in parameters if name not in wrong]
        words = [w for word in words for w in (joined if word == _ALL else [word])]
    try:
        given, lacking = parser.read(words)
    except _ParserError as e:
        yield None, f"{script.name} {e}"
        return  # whether the word after an unknown option is its value is unknown
    yield from wrong.items()
    yield from _always_true(script.name, parser, given, always_true)
    options = [o for o in parser.required if getattr(given, o.dest, None) is None]
    for needed in [*(f"option {o.option_strings[0]}" for o in options), *lacking]:
        yield None, f"{script.name} requires the {needed}"


def _always_true(
    script: str, parser: ScriptParser, given: argparse.Namespace, known: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Parameters of which every value is true, although that is not `known` of them."""
    for option in parser.bools:
        for name in template_names([str(getattr(given, option.dest, ""))]):
            if name not in known:
                problem = f"type=bool of {option.option_strings[0]} in {script}"
                yield name, f"{problem} {_REFUSED['type=bool']}; there write {_READS_BOOL}"


def _problems_of_args(
    script: str, parser: ScriptParser, parameters: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Options that `{args}` gives and that the script has not, or not with a value."""
    for name in parameters:
        option = parser.option(f"--{name}")
        if option is None:
            yield name, f"{script} has no option --{name}{suggest(f'--{name}', parser.options)}"
        elif option.nargs == 0:
            problem = f"--{name} of {script} takes no value, but {{args}}"
            yield name, f"{problem} {_REFUSED['{args} for a flag']}: {_READS_BOOL}"


def parser_of_bools(command: Sequence[str]) -> str:
    """`absl` or `fire` if the command's script uses it: it reads booleans by rules of its own."""
    try:
        scripts = (Path(word) for word in command if word.endswith(".py"))
        used = read_file(next(script for script in scripts if script.is_file())).imported
    except (StopIteration, SyntaxError, ValueError, OSError):
        return ""
    if used & {"absl.flags", "absl.app"}:
        return "absl"
    return "fire" if used & {"fire", "fire.Fire"} and "argparse" not in used else ""


def script_parser(script: Path) -> ScriptParser | None:
    """The parser that a script makes; None if its source does not show all of it."""
    try:
        file = read_file(script)
    except (SyntaxError, ValueError):
        return None
    calls = file.calls()
    made = [call for call in calls if ast.unparse(call.func).endswith("ArgumentParser")]
    methods = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
    if len(made) != 1 or "parse_args" not in methods or methods & _UNCLEAR:
        return None
    keys = {keyword.arg for keyword in made[0].keywords}
    if ast.unparse(made[0].func) not in _PARSERS or keys & _UNCLEAR_KEYS:
        return None
    parser = ScriptParser()
    added = [
        c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "add_argument"
    ]
    is_read = not _is_handed_on(made[0], file) and all([parser.add(call) for call in added])
    return parser if is_read else None


def _is_handed_on(parser: ast.Call, file: PythonFile) -> bool:
    """Whether another function gets the parser, and may add arguments."""
    statement = file.parents[parser]
    names = [ast.unparse(statement.targets[0])] if isinstance(statement, ast.Assign) else []
    values = [v for c in file.calls() for v in (*c.args, *(k.value for k in c.keywords))]
    return any(isinstance(value, ast.Name) and value.id in names for value in values)
