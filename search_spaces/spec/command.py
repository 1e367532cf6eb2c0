"""The keys `command`, `report_from` and `user_code`: any program as the training code of a trial,
and functions that read its models."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from pydantic import Field, ValidationInfo, model_validator

from search_spaces.domains.conditional import parameters
from search_spaces.errors import suggest
from search_spaces.nested import flattened
from search_spaces.patterns import check_patterns
from search_spaces.spec.base import Section

PREFIX = "command: "
"""Beginning of the trainable's name of a sweep with a `command`."""
ARGS = "args"
PLACES = ("seed", "workers", "nodes", "node_rank", "master_addr", "master_port")
"""Names that a template may have in addition to the parameters of the trial."""

NAME = r"[A-Za-z_][\w-]*(?:\.[\w-]+)*"
"""A pattern of the names that a template has in braces."""
_SHELL_DEFAULT = r"\$\{\w+-\w*\}"
_TEMPLATE = re.compile(rf"{_SHELL_DEFAULT}|\{{\{{({NAME})\}}\}}|\{{({NAME})\}}")
OPTION = re.compile(r"--[^\s={}]+|-[A-Za-z]")
"""A word that is the name of an option."""
_NEGATIVE_NUMBER = re.compile(r"-(?:\d+|\d*\.\d+)")
"""What parsers of options take for a number. They take `-1e-05` for an option."""


class ReportFromSpec(Section):
    """Where the reports of a `command` come from, beside the file that $TUNE_REPORTS names."""

    stdout: dict[str, str] = Field(
        default_factory=dict,
        description="Metric to a regular expression with one group, searched in each line of the "
        "output and of the error output; a report is complete when each has matched.",
    )
    jsonl: str | None = Field(
        None,
        min_length=1,
        description="File of the program with a JSON object per report; relative to the trial's "
        "working directory. Lines are joined until the metric is among them.",
    )
    tensorboard: str | None = Field(
        None,
        min_length=1,
        description="Folder in which the program writes event files for TensorBoard; relative to "
        "the trial's working directory. Each value of the metric is a report.",
    )

    @model_validator(mode="after")
    def _check_stdout(self) -> Self:
        if self.stdout:
            check_patterns(self.stdout.values())
        for name, pattern in self.stdout.items():
            if re.compile(pattern).groups != 1:
                raise ValueError(
                    f"stdout.{name}: needs one group around the number, like '\\bloss=(\\S+)', "
                    f"got '{pattern}'"
                )
        return self


def template_names(command: Sequence[str]) -> list[str]:
    """The names in braces, in order; `{{name}}` stands for the text `{name}`."""
    return [m[2] for part in command for m in _TEMPLATE.finditer(part) if m[2]]


def check_command(command: list[str] | None, info: ValidationInfo) -> list[str] | None:
    """Refuse a command beside a trainable, names in it that are neither parameters nor places, and
    `{args}` within an argument.

    Raises:
        ValueError: the first mistake.
    """
    given = info.data
    if "named" in given and (command is None) == (given["named"] is None):
        raise ValueError("either trainable or command is required, and not both")
    if not command or not {"space", "fixed"} <= given.keys():
        return command
    if not command[0].strip():
        raise ValueError("begins with the name of a program, got an empty text")
    searched = {leaf.name for leaf in parameters(given["space"])}
    known = {*searched, *flattened(given["fixed"]), *PLACES, ARGS}
    for name in template_names(command):
        if name not in known:
            raise ValueError(
                f"{{{name}}} is not a parameter{suggest(name, sorted(known))}; "
                f"for these braces themselves write {{{{{name}}}}}"
            )
    if any(f"{{{ARGS}}}" in part and part != f"{{{ARGS}}}" for part in command):
        raise ValueError("{args} stands alone: it becomes several arguments")
    return command


def fill(command: Sequence[str], values: Mapping[str, str], args: Sequence[str]) -> list[str]:
    """The command with its names replaced; `{args}` becomes several arguments.

    A value that looks like an option, such as `-1e-05`, is joined to the option before it.

    Raises:
        KeyError: a name has no value.
    """
    filled: list[str] = []
    for before, part in zip(["", *command], command, strict=False):
        if part == f"{{{ARGS}}}":
            filled += args
            continue
        word = _TEMPLATE.sub(lambda m: _replacement(m, values), part)
        is_value = word.startswith("-") and part.startswith("{") and not part.startswith("{{")
        if is_value and OPTION.fullmatch(before) and not _NEGATIVE_NUMBER.fullmatch(word):
            filled[-1] += "=" * before.startswith("--") + word
        else:
            filled.append(word)
    return filled


def _replacement(found: re.Match[str], values: Mapping[str, str]) -> str:
    if found[2]:
        return values[found[2]]
    return f"{{{found[1]}}}" if found[1] else found[0]


def option_words(name: str, text: str) -> list[str]:
    """A parameter as an option: two words, or one if the value looks like an option itself."""
    return [f"--{name}={text}"] if text.startswith("-") else [f"--{name}", text]


def can_be_placeholder(name: str) -> bool:
    """Whether `{name}` in a command stands for the parameter of this name."""
    return re.fullmatch(NAME, name) is not None


def name_of(command: Sequence[str]) -> str:
    """The trainable's name of a command, from which `parse_name` gets it back."""
    return PREFIX + shlex.join(command)


def parse_name(name: str) -> list[str]:
    """The command of a trainable's name."""
    return shlex.split(name.removeprefix(PREFIX))


def with_absolute_files(command: Sequence[str], folder: Path) -> list[str]:
    """The command with the paths of existing files made absolute: trials run in other folders.

    A path is relative to `folder`, or else to the working directory. The program itself is a
    path if it has a slash, as in a shell; `--key=path` is found too.
    """
    program, *rest = command
    found = _absolute(program, folder) if "/" in program else program
    return [found, *(_absolute(part, folder) for part in rest)]


def _absolute(part: str, folder: Path) -> str:
    key, equals, value = part.partition("=") if part.startswith("-") else ("", "", part)
    for base in (folder, Path.cwd()):
        try:
            if value and (path := (base / value).absolute()).is_file():
                return f"{key}{equals}{path}"
        except (OSError, ValueError):  # too long, or a zero byte
            break
    return part


EXTERNAL = "external"
"""The trainable of a sweep whose trials another program runs: it asks for them, and tells."""


class UserCodeSpec(Section):
    """Functions for averages and exports, each as script.py:function or package.module:function."""

    weights: str | None = Field(
        None,
        pattern=":",
        description="weights(folder): the tensors of a checkpoint, by name; default: those of its "
        "*.safetensors files.",
    )
    evaluate: str | None = Field(
        None,
        pattern=":",
        description="evaluate(weights, config, split): metrics of a model, numbers or lists with "
        "one number per example; split is selection or test.",
    )
    model: str | None = Field(
        None,
        pattern=":",
        description="model(weights, config): the torch module and an example input, for onnx and "
        "pt2.",
    )

    @property
    def named(self) -> dict[str, str]:
        """Key to function, of the keys that are given."""
        return {key: name for key, name in self if name is not None}

    def mapped(self, change: Callable[[str], str]) -> Self:
        """A copy with other names of the functions."""
        return self.model_copy(update={key: change(name) for key, name in self.named.items()})
