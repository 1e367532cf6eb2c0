"""The options of a script, as its source shows them: of argparse and of what is used in its place.

Each library's function returns nothing for a script that does not use it, or whose source does not
show how. The script is parsed, never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from search_spaces.nested import flattened
from trainables.user_code.command.arguments import script_parser
from trainables.user_code.offered import REFUSED
from trainables.user_code.python_source.python_file import UNREAD, PythonFile
from tuning.translation.domains import domain_around, is_searched
from tuning.translation.yaml_part import read_file

_SEVERAL, _NO_VALUE = "it does not take one value", "it takes no value, or is not to be searched"
_HF = {"learning_rate": 5e-5, "per_device_train_batch_size": 8}
"""Those options of transformers' TrainingArguments that most searches have, with their defaults."""


@dataclass(frozen=True)
class ScriptOption:
    """An option of a script.

    Attributes:
        name: of the parameter, as the script spells it.
        place: file and line.
        default: `UNREAD` if there is none, or none that is read.
        choices: its only values; `UNREAD` if they are not read, None if there are none.
        is_required: whether the script fails without it.
        words: of the command, with `{name}`; none: `{args}` gives `--name=value`.
        omitted: why it cannot be a parameter; empty: it can.
        is_positional: whether it has no name in the command.
    """

    name: str
    place: str
    default: Any = UNREAD
    choices: Any = None
    is_required: bool = False
    words: tuple[str, ...] = ()
    omitted: str = ""
    is_positional: bool = False


def script_options(file: PythonFile) -> list[ScriptOption]:
    """All options of a script; none if its source does not show them."""
    found = (list(read(file)) for read in _READERS)
    return next((options for options in found if options), [])


def _argparse(file: PythonFile) -> Iterator[ScriptOption]:
    parser = script_parser(file.path)
    for action, call in parser.calls if parser else ():
        name = max(action.option_strings, key=len, default=action.dest)
        omitted = _SEVERAL if action.nargs not in (None, "?") else ""
        if parser and action in parser.bools:
            omitted = f"its type=bool {REFUSED['command']['type=bool']}"
        made = _by_call(file, name, call, call.keywords, omitted)
        yield replace(made, is_positional=not action.option_strings)


def _by_call(
    file: PythonFile,
    option: str,
    node: ast.expr,
    keywords: Sequence[ast.keyword],
    omitted: str = "",
) -> ScriptOption:
    """An option whose call has the keywords of argparse."""
    given = {str(k.arg): k.value for k in keywords}
    made = _option(file, option, node, given.get("default"), given.get("type"))
    choices = file.literal(given["choices"]) if "choices" in given else made.choices
    required = file.literal(given.get("required")) is True
    return replace(made, choices=choices, is_required=required, omitted=omitted)


def _option(
    file: PythonFile,
    option: str,
    node: ast.expr | ast.stmt | ast.arg,
    default: ast.expr | None,
    kind: ast.expr | None,
) -> ScriptOption:
    """An option, as `--name` or `-n`, with the expressions of its default and its type."""
    value, choices = UNREAD if default is None else file.literal(default), None
    if kind is not None and ast.unparse(kind) == "float" and isinstance(value, int):
        value = float(value)
    if isinstance(kind, ast.Call) and file.name(kind.func) == "click.Choice":
        choices = file.literal(kind.args[0])
    elif isinstance(kind, ast.Subscript) and file.name(kind.value) == "typing.Literal":
        choices = file.literal(kind.slice)
    name, place = option.lstrip("-"), f"{file.path.name}:{node.lineno}"
    words = () if option.startswith("--") else (option, f"{{{name}}}")
    return ScriptOption(name, place, value, choices, default is None, words)


def _flag(option: ScriptOption, off: str) -> ScriptOption:
    """An option that takes no value, which the word `off` switches off; empty: nothing does."""
    if not off or not is_searched(option.name):
        return replace(option, omitted=_NO_VALUE)
    both = [option.name, off.lstrip("-")]
    default = both[0] if option.default is True else both[1]
    words = (f"--{{{option.name}}}",)
    return replace(option, default=default, choices=both, is_required=False, words=words)


def _decorated(file: PythonFile, name: str) -> list[tuple[ast.FunctionDef, ast.expr]]:
    """The functions that have a decorator, with it."""
    functions = [node for node in file.statements if isinstance(node, ast.FunctionDef)]
    found = [(f, d) for f in functions for d in f.decorator_list]
    return [(f, d) for f, d in found if _made_by(file, d) == name]


def _made_by(file: PythonFile, node: ast.expr | None) -> str:
    """The full name of a function that is called or named; `typer.Typer.command` of an `app`."""
    called = node.func if isinstance(node, ast.Call) else node
    if isinstance(called, ast.Attribute) and isinstance(made := file.value(called.value), ast.Call):
        return f"{file.name(made.func)}.{called.attr}"
    return file.name(called) if called else ""


def _arguments_of(file: PythonFile, *names: str) -> list[ast.AST | None]:
    """The functions and classes of the file that are the first argument of a call."""
    calls = [call for call in file.calls() if file.name(call.func) in names and call.args]
    nodes = [n for c in calls for n in getattr(c.args[0], "elts", c.args[:1])]
    return [file.definition(node) or node for node in nodes]


def _parameters(function: ast.FunctionDef) -> Iterator[tuple[ast.arg, ast.expr | None]]:
    """The arguments of a function with their defaults."""
    of = function.args
    plain = [*of.posonlyargs, *of.args]
    without = [None] * (len(plain) - len(of.defaults))
    yield from zip(plain, [*without, *of.defaults], strict=True)
    yield from zip(of.kwonlyargs, of.kw_defaults, strict=True)


def _fields(file: PythonFile, owner: ast.ClassDef, prefix: str = "--") -> Iterator[ScriptOption]:
    """The fields of a dataclass, and of those that it has as fields, as `outer.inner`."""
    for parent in owner.bases:
        base = file.definition(parent)
        own = _fields(file, base, prefix) if isinstance(base, ast.ClassDef) else None
        yield from own or _elsewhere(file, parent)
    for node in (n for n in owner.body if isinstance(n, ast.AnnAssign)):
        inner, default = file.definition(node.annotation), node.value
        name = f"{prefix}{ast.unparse(node.target)}"
        if isinstance(default, ast.Call) and file.name(default.func) == "dataclasses.field":
            given = {k.arg: k.value for k in default.keywords}
            default = given.get("default", getattr(given.get("default_factory"), "body", None))
        if isinstance(inner, ast.ClassDef) and any(
            isinstance(n, ast.AnnAssign) for n in inner.body
        ):
            yield from _fields(file, inner, f"{name}.")
        else:
            yield _option(file, name, node, default, node.annotation)


def _click(file: PythonFile) -> Iterator[ScriptOption]:
    for function, _ in _decorated(file, "click.command"):
        for call in (d for d in function.decorator_list if isinstance(d, ast.Call)):
            if file.name(call.func) in ("click.option", "click.argument"):
                yield _click_option(file, call)


def _click_option(file: PythonFile, call: ast.Call) -> ScriptOption:
    given = {k.arg: file.literal(k.value) for k in call.keywords}
    several = any(given.get(key) for key in ("multiple", "count")) or given.get("nargs", 1) != 1
    name, off = _longest(file, call.args)
    made = _by_call(file, name, call, call.keywords, _SEVERAL if several else "")
    made = replace(made, is_positional=not name.startswith("-"))
    return _flag(made, off) if off or given.get("is_flag") else made


def _longest(file: PythonFile, names: Sequence[ast.expr]) -> tuple[str, str]:
    """The longest name, and that which switches it off; `--amp/--no-amp` are both."""
    texts = [str(file.literal(name)) for name in names]
    name = max((t for t in texts if t.startswith("-")), key=len, default=" ".join(texts))
    on, _, off = name.partition("/")
    return on.strip(), off.strip()


def _typer(file: PythonFile) -> Iterator[ScriptOption]:
    found = [function for function, _ in _decorated(file, "typer.Typer.command")]
    found += [f for f in _arguments_of(file, "typer.run") if isinstance(f, ast.FunctionDef)]
    for argument, default in _parameters(found[0]) if len(found) == 1 else ():
        yield _typer_option(file, argument, default)


def _typer_option(file: PythonFile, argument: ast.arg, default: ast.expr | None) -> ScriptOption:
    kind, said, names = argument.annotation, default, list[ast.expr]()
    if isinstance(kind, ast.Subscript) and isinstance(kind.slice, ast.Tuple):  # Annotated
        kind, said = kind.slice.elts[:2]
        names = said.args if isinstance(said, ast.Call) else []
    elif isinstance(default, ast.Call):
        default, *names = default.args
    name, off = _longest(file, names)
    plain = f"--{argument.arg.replace('_', '-')}"
    made = _option(file, name or plain, argument, default, kind)
    made = replace(made, is_positional=said is None or _made_by(file, said) == "typer.Argument")
    is_flag = kind is not None and ast.unparse(kind) == "bool"
    return _flag(made, off if name else f"--no-{plain[2:]}") if is_flag else made


def _tyro(file: PythonFile) -> Iterator[ScriptOption]:
    for target in _arguments_of(file, "tyro.cli"):
        for option in _annotated(file, target):
            *parents, last = option.name.split(".")
            off = ".".join([*parents, f"no-{last}"])
            yield _flag(option, off) if isinstance(option.default, bool) else option


def _annotated(file: PythonFile, target: ast.AST | None) -> Iterator[ScriptOption]:
    """The fields of a class, or the arguments of a function."""
    if isinstance(target, ast.ClassDef):
        yield from _fields(file, target)
    elif isinstance(target, ast.FunctionDef):
        for argument, default in _parameters(target):
            yield _option(file, f"--{argument.arg}", argument, default, argument.annotation)


def _fire(file: PythonFile) -> Iterator[ScriptOption]:
    for target in _arguments_of(file, "fire.Fire", "fire"):
        yield from _annotated(file, target) if isinstance(target, ast.FunctionDef) else ()


def _hf(file: PythonFile) -> Iterator[ScriptOption]:
    for target in _arguments_of(file, "transformers.HfArgumentParser", "trl.TrlParser"):
        yield from _annotated(file, target)
        if isinstance(target, ast.expr):
            yield from _elsewhere(file, target)


def _elsewhere(file: PythonFile, owner: ast.expr) -> Iterator[ScriptOption]:
    """What is known of the fields of a class of another file, and that others are not read."""
    name, place, known = ast.unparse(owner), f"{file.path.name}:{owner.lineno}", ""
    full = file.name(owner)
    if full.startswith("transformers.") and full.endswith("TrainingArguments"):
        yield from (ScriptOption(option, place, value) for option, value in _HF.items())
        yield ScriptOption("seed", place)
        known = f" but {' and '.join(_HF)}; perhaps it needs --output_dir"
    yield ScriptOption(name, place, omitted=f"its options are not read{known}")


def _absl(file: PythonFile) -> Iterator[ScriptOption]:
    for call in file.calls():
        kind = file.name(call.func).partition("absl.flags.DEFINE_")[2]
        if kind in ("float", "integer", "string", "bool", "boolean", "enum"):
            name, default, choices = [*call.args, None, None][:3]
            made = _option(file, f"--{file.literal(name)}", call, default, ast.Name(kind))
            yield replace(made, choices=file.literal(choices)) if kind == "enum" else made


def _configurator(file: PythonFile) -> Iterator[ScriptOption]:
    """Variables of a module that nanoGPT's configurator.py replaces by `--name=value`."""
    calls = [call for call in file.calls() if file.name(call.func) == "exec"]
    run = next((call for call in calls if "configurator" in ast.unparse(call)), None)
    for node in file.tree.body if run else ():
        name = ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else "_"
        if run and node.lineno < run.lineno and isinstance(node, ast.Assign) and name[0] != "_":
            option = _option(file, f"--{name}", node, node.value, None)
            option = replace(option, words=(f"--{name}={{{name}}}",))
            if isinstance(option.default, bool) and is_searched(name):  # read as Python writes it
                said = str(option.default)
                option = replace(option, default=said, choices=["True", "False"])
            yield option


def _hydra(file: PythonFile) -> Iterator[ScriptOption]:
    for _, call in _decorated(file, "hydra.main"):
        given = {k.arg: k.value for k in getattr(call, "keywords", ())}
        path, name = given.get("config_path"), str(file.literal(given.get("config_name")))
        path = path.right if isinstance(path, ast.BinOp) else path  # root / "configs"
        below = [
            parent / str((path and file.literal(path)) or ".") for parent in file.path.parents[:3]
        ]
        name = name.removesuffix(".yaml") + ".yaml"
        if folder := next((folder for folder in below if (folder / name).is_file()), None):
            yield from _hydra_options(folder, name, "")


def _hydra_options(folder: Path, name: str, prefix: str) -> Iterator[ScriptOption]:
    """The values of a config that may be searched; others keep those that it gives them."""
    config = read_file(folder / name)
    for part in config.part("defaults").parts():
        for group, chosen in part.read().items() if isinstance(part.raw, Mapping) else ():
            path = f"{group}/{str(chosen).removesuffix('.yaml')}.yaml"
            if (folder / path).is_file():
                yield from _hydra_options(folder, path, f"{group}.")
    for key, value in flattened(config.read(), prefix).items():
        is_own = key.rpartition(".")[2].startswith("_")  # of Hydra: `_partial_`
        if key == "seed" or (domain_around(key, value) is not None and not is_own):
            yield ScriptOption(key, name, value, words=(f"{key}={{{key}}}",))


_READERS = (_argparse, _click, _typer, _tyro, _hf, _fire, _absl, _hydra, _configurator)
