"""Compares the arguments of a command with what its Python script takes by argparse.

The script is only parsed. Where its source does not show everything, nothing is said.
"""

from __future__ import annotations

import ast
import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from search_spaces.errors import suggest
from search_spaces.spec.command import ARGS, OPTION, template_names
from trainables.user_code.offered import REFUSED

_PARSERS = ("argparse.ArgumentParser", "ArgumentParser")
_UNCLEAR = {"parse_known_args", "parse_known_intermixed_args", "add_subparsers"}
_UNCLEAR_KEYS = {"parents", "prefix_chars", "fromfile_prefix_chars"}
_NO_VALUE = {"store_true", "store_false", "store_const", "append_const", "count", "help", "version"}
_MANY = {"*": 0, "+": 1, "?": 0, "...": 0, "A...": 1}
"""Least number of values by `nargs`."""
_REFUSED = REFUSED["command"]
_READS_BOOL = "type=lambda text: text == 'true'"
_ALL = f"{{{ARGS}}}"


@dataclass(frozen=True)
class Argument:
    """An argument of a script.

    Attributes:
        names: its options, or the name of a positional one.
        least, most: number of its values.
        required: whether the script fails without it.
        is_bool: whether its type is `bool`, for which every text is true.
    """

    names: tuple[str, ...]
    least: int = 1
    most: float = 1
    required: bool = False
    is_bool: bool = False

    @property
    def is_option(self) -> bool:
        """Whether it is given by name."""
        return self.names[0].startswith("-")


@dataclass
class _Given:
    """What a command gives a script: options by name, parameters as values of options that are
    `bool`, other words, and an option it has not.
    """

    options: set[Argument] = field(default_factory=set)
    bools: list[tuple[Argument, str]] = field(default_factory=list)
    words: int = 0
    parameters: bool = False
    unknown: str | None = None


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
    taken = script_arguments(script) if script else None
    if script is None or taken is None:
        return
    options = {name: a for a in taken if a.is_option for name in a.names}
    given = _given(command[scripts[0] + 1 :], options)
    if given.unknown is not None:
        yield None, f"{script.name} has no option {given.unknown}{suggest(given.unknown, options)}"
        return  # whether the next word is its value is unknown
    if given.parameters:
        yield from _problems_of_args(script.name, parameters, options, given)
    for option, name in given.bools:
        if name not in always_true:
            problem = f"type=bool of {option.names[0]} in {script.name} {_REFUSED['type=bool']}"
            yield name, f"{problem}; there write {_READS_BOOL}"
    for lacking in _lacking(taken, given):
        kind = "option" if lacking.is_option else "argument"
        yield None, f"{script.name} requires the {kind} {lacking.names[0]}"


def _problems_of_args(
    script: str, parameters: Sequence[str], options: Mapping[str, Argument], given: _Given
) -> Iterator[tuple[str, str]]:
    """Options that `{args}` gives and that the script has not, or not with a value; the others are
    added to what is given.
    """
    for name in parameters:
        option = _named(f"--{name}", options)
        if option is None:
            yield name, f"{script} has no option --{name}{suggest(f'--{name}', options)}"
        elif not option.most:
            problem = f"--{name} of {script} takes no value, but {{args}}"
            yield name, f"{problem} {_REFUSED['{args} for a flag']}: {_READS_BOOL}"
        else:
            given.options.add(option)
            given.bools += [(option, name)] * option.is_bool


def script_arguments(script: Path) -> list[Argument] | None:
    """The arguments that a script adds to its parser; None if its source does not show all."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = [call for call in calls if ast.unparse(call.func).endswith("ArgumentParser")]
    methods = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
    if len(made) != 1 or "parse_args" not in methods or methods & _UNCLEAR:
        return None
    keys = {keyword.arg for keyword in made[0].keywords}
    if ast.unparse(made[0].func) not in _PARSERS or keys & _UNCLEAR_KEYS:
        return None
    if _is_handed_on(made[0], tree, calls):
        return None
    added = [
        _argument(call)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
    ]
    found = [argument for argument in added if argument is not None]
    return found if len(found) == len(added) else None


def _is_handed_on(parser: ast.Call, tree: ast.Module, calls: list[ast.Call]) -> bool:
    """Whether another function gets the parser, and may add arguments."""
    names = {
        ast.unparse(node.targets[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and node.value is parser
    }
    given = [*(a for c in calls for a in c.args), *(k.value for c in calls for k in c.keywords)]
    return any(ast.unparse(value) in names for value in given if isinstance(value, ast.Name))


def _argument(call: ast.Call) -> Argument | None:
    """The argument that `add_argument` adds; None if its text does not show it."""
    keys = {k.arg: k.value.value for k in call.keywords if isinstance(k.value, ast.Constant)}
    names = tuple(str(a.value) for a in call.args if isinstance(a, ast.Constant))
    custom = next((ast.unparse(k.value) for k in call.keywords if k.arg == "action"), "")
    is_computed = {k.arg for k in call.keywords} & {None, "nargs", "required"} - keys.keys()
    if not names or len(names) != len(call.args) or is_computed:
        return None
    if custom.endswith("BooleanOptionalAction"):
        negated = tuple(f"--no-{n[2:]}" for n in names if n.startswith("--"))
        return Argument((*names, *negated), 0, 0, bool(keys.get("required")))
    if custom and "action" not in keys:
        return None
    if keys.get("action") in _NO_VALUE:
        return Argument(names, 0, 0, bool(keys.get("required")))
    count = keys.get("nargs")
    least, most = (count, count) if isinstance(count, int) else (1, 1.0)
    if isinstance(count, str):
        least, most = _MANY.get(count, 0), 1 if count == "?" else math.inf
    kind = next((ast.unparse(k.value) for k in call.keywords if k.arg == "type"), "")
    return Argument(names, least, most, bool(keys.get("required")), kind == "bool")


def _given(words: Sequence[str], options: Mapping[str, Argument]) -> _Given:
    found, waiting = _Given(), deque(words)
    while waiting:
        name, is_joined, value = (word := waiting.popleft()).partition("=")
        if word == _ALL:
            found.parameters = True
        elif not OPTION.fullmatch(name):
            found.words += 1
        elif (option := _named(name, options)) is None:
            found.unknown = name
            return found
        else:
            found.options.add(option)
            values = [value] if is_joined else []
            while not is_joined and len(values) < option.most and waiting:
                if _is_name(waiting[0]):
                    break
                values.append(waiting.popleft())
            if option.is_bool:
                found.bools += [(option, parameter) for parameter in template_names(values)]
    return found


def _is_name(word: str) -> bool:
    return word == _ALL or OPTION.fullmatch(word.partition("=")[0]) is not None


def _named(name: str, options: Mapping[str, Argument]) -> Argument | None:
    """The option of a name, also of the beginning of one, as argparse has it."""
    begun = {options[n] for n in options if name.startswith("--") and n.startswith(name)}
    if name in ("-h", "--help"):
        return Argument((name,), 0, 0)
    return options.get(name) or (begun.pop() if len(begun) == 1 else None)


def _lacking(taken: Sequence[Argument], given: _Given) -> Iterator[Argument]:
    """Required arguments that are not given."""
    words = given.words
    for argument in taken:
        if argument.is_option:
            if argument.required and argument not in given.options:
                yield argument
            continue
        if words < argument.least:
            yield argument
        words = max(0, words - argument.least)
