"""The metrics that training code reports, as far as its source shows them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainables.user_code.python_source.project import inner_nodes
from trainables.user_code.python_source.python_file import PythonFile
from tuning.translation.domains import held_out

_NUMBER = r"([-+]?[\w.]*\w(?:(?<=[\d.][eE])[-+]\d+)?)"
_LABEL = re.compile(r"([A-Za-z][\w/-]*(?: [\w/-]+)?)( ?[:=] ?)$|([A-Za-z][\w/-]*)( )$")
_VALUE = "\ue000"
_PERCENT, _BRACES = re.compile(r"%[-+ #0-9.]*[diouxXeEfFgGsr]"), re.compile(r"\{[^{}]*\}")
_PRINTS = ("print", "sys.stdout.write", "tqdm.tqdm.write")
_NOT_METRICS = {"step", "checkpoint", "metrics", None}


def reported_metrics(file: PythonFile) -> list[str]:
    """Names in the calls of `report` in a file: of Ray Train, Ray Tune and `tune_report`."""
    found: list[str] = []
    for call in file.calls():
        if file.name(call.func).rpartition(".")[2] == "report":
            found += [str(k.arg) for k in call.keywords if k.arg not in _NOT_METRICS]
            given = [*call.args[:1], *(k.value for k in call.keywords if k.arg == "metrics")]
            found += [name for node in given for name in _keys(file, node)]
    return list(dict.fromkeys(found))


def returned_metrics(file: PythonFile, function: ast.FunctionDef) -> list[str]:
    """Names in the mappings that a function returns or yields."""
    outputs = (n for n in inner_nodes(function.body) if isinstance(n, ast.Return | ast.Yield))
    found = [name for node in outputs if node.value for name in _keys(file, node.value)]
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class PrintedLine:
    """A line that a file prints or logs.

    Attributes:
        text: with `1` for each value.
        patterns: names before values, and what finds them. That of
            `f"epoch {epoch} loss={loss:.4f}"` for `loss` is a pattern of `report_from.stdout`.
    """

    text: str
    patterns: dict[str, str]


def printed_lines(file: PythonFile) -> list[PrintedLine]:
    """Of each call that prints or logs in a file."""
    calls = [(file.name(call.func), call) for call in file.calls() if call.args]
    shown = [c for name, c in calls if name in _PRINTS or name.endswith(".info")]
    lines = [_line(c) for c in shown if "file" not in {k.arg for k in c.keywords}]
    return [PrintedLine(line.replace(_VALUE, "1"), dict(_labels(line))) for line in lines]


def trainer_line(file: PythonFile) -> dict[str, str]:
    """The pattern of what the Trainer of transformers prints, if a file uses one of its kind."""
    made = (file.name(call.func) for call in file.calls())
    uses = any(n.startswith(("transformers.", "trl.")) and n.endswith("Trainer") for n in made)
    return {"eval_loss": "'eval_loss': '?([^',}]+)"} if uses else {}


def _line(call: ast.Call) -> str:
    """What a call prints, with `_VALUE` in place of each value."""
    first, *others = map(_text, call.args)
    formatted = _PERCENT.sub(_VALUE, first)
    is_logged = others and formatted != first
    return formatted if is_logged else " ".join([first, *others])


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return _PERCENT.sub(_VALUE, text)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return _BRACES.sub(_VALUE, text)
    return _VALUE


def _labels(line: str) -> Iterator[tuple[str, str]]:
    for part in line.split(_VALUE)[:-1]:
        before = part.rpartition("\n")[2]
        if label := _LABEL.search(before):
            name, begin = (label[1] or label[3]).replace(" ", "_"), label.start()
            if held := held_out(before[:begin]):  # `Test set: loss 0.5`
                name, begin = f"{held[1]}_{name}".lower(), held.start()
            text = re.escape(before[begin:].rstrip()).replace("\\ ", " ")
            yield name, rf"(?<!\w){text} *{_NUMBER}"


def logged_scalars(file: PythonFile) -> tuple[list[str], str]:
    """Tags that a file gives to TensorBoard, and the folder of the event files: the part of its
    name that is not computed.
    """
    calls = [(file.name(call.func).rpartition(".")[2], call) for call in file.calls()]
    tags = [file.literal(c.args[0]) for name, c in calls if name == "add_scalar" and c.args]
    folder = "runs"  # of a writer without a folder
    for call in (call for name, call in calls if name == "SummaryWriter"):
        named = [k.value for k in call.keywords if k.arg in ("log_dir", "logdir")]
        for path in map(file.value, [*call.args, *named][:1]):
            parts = path.values[:1] if isinstance(path, ast.JoinedStr) else [path]
            text = str(file.literal(parts[0])) if isinstance(parts[0], ast.Constant) else ""
            folder = text if parts == [path] and text else text.rpartition("/")[0] or "."
    return [tag for tag in dict.fromkeys(tags) if isinstance(tag, str)], folder


def _keys(file: PythonFile, node: ast.expr) -> Iterator[str]:
    """The keys of a mapping; of a variable those that any statement of the file gives it."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            yield from _keys(file, value) if key is None else _names(file, key, value)
    elif isinstance(node, ast.Call) and file.name(node.func) == "dict":
        yield from (k.arg for k in node.keywords if k.arg is not None)
    elif isinstance(node, ast.Name):
        for statement in (n for n in file.nodes if isinstance(n, ast.Assign)):
            target, value = statement.targets[0], statement.value
            if isinstance(target, ast.Subscript) and ast.unparse(target.value) == node.id:
                yield from _names(file, target.slice, value)
            elif ast.unparse(target) == node.id and not isinstance(value, ast.Name):
                yield from _keys(file, value)


def _names(file: PythonFile, key: ast.expr, value: ast.expr) -> list[str]:
    """The names under a key, as `outer/inner` of a mapping; none if the key is computed."""
    if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
        return []
    is_group = isinstance(value, ast.Dict)
    return [f"{key.value}/{name}" for name in _keys(file, value)] if is_group else [key.value]
