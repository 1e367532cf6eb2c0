"""A program in any language as a trainable: `command` of a sweep file."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError
from search_spaces.nested import flattened
from search_spaces.spec.command import ARGS, can_be_placeholder, parse_name, template_names
from search_spaces.spec.sweep import SweepSpec
from trainables.config import Problem
from trainables.runtime.source import source_digests
from trainables.user_code.command.arguments import argument_problems
from trainables.user_code.command.environment import PYTHON, search_path, variable
from trainables.user_code.command.project_view import check_size
from trainables.user_code.user_loop import UncheckedConfig, UserCode
from trainables.worker import Worker

_MAX_SOURCE = 2**24
"""Bytes; a larger file is data."""
_BINARIES = ("bin", "sbin")
_MENTION = b"TUNE_PARAM"
"""In code that reads its parameters from the environment or the JSON file."""


class Command(UserCode):
    """A program of its own for each attempt; it reports by a file or by its output.

    Its checkpoints are sealed when it says so, and only the program can read them.

    Args:
        name: as `search_spaces.spec.command.name_of` makes it.
    """

    kind = "command"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.command = parse_name(name)

    def train(self, config: UncheckedConfig, worker: Worker) -> None:
        """Run the program; see the base class."""
        from trainables.user_code.command.loop import train

        train(self.command, worker, self.folder if worker.job.cwd == "project" else None)

    def config_problems(self, config: Mapping[str, Any], *, files: bool) -> list[Problem]:
        """A program that is not there, and parameters that do not reach it; see the base class."""
        problem = _program_problem(self.command) if files else None
        found: list[Problem] = [((), problem)] if problem else []
        named = set(template_names(self.command))
        if self._reads_environment():
            return [*found, *_same_variables(config)]
        if ARGS in named:
            return found
        unused = (name for name in flattened(config) if name not in named)
        for name in unused:
            option = f"--{name}, '{{{name}}}', or " if can_be_placeholder(name) else ""
            advice = f"write {option}'{{args}}' for all, or read ${variable(name)}"
            found.append((tuple(name.split(".")), f"reaches the program in no way; {advice}"))
        return found

    def setting_problems(
        self, spec: SweepSpec, configs: Sequence[Mapping[str, Any]]
    ) -> list[Problem]:
        """Arguments that the script does not take, or lacks; see the base class."""
        found = super().setting_problems(spec, configs)
        names = dict.fromkeys(name for config in configs for name in flattened(config))
        fixed = flattened(spec.fixed)
        always_true = {name for name, value in fixed.items() if value is True}
        for name, problem in argument_problems(self.command, list(names), always_true):
            section = "fixed" if name in fixed else "space"
            found.append(((section, *name.split(".")) if name else ("command",), problem))
        if spec.cwd == "project" and self.folder is None:
            problem = "project needs a command that names a file, as [python, train.py]"
            found.append((("cwd",), problem))
        elif spec.cwd == "project" and self.folder is not None:
            try:
                check_size(self.folder, Path(spec.storage).resolve())
            except UserError as e:
                found.append((("cwd",), str(e)))
        return found

    def with_seed(self, config: dict[str, Any], seed: int) -> dict[str, Any]:
        """The program gets the seed by `{seed}` or as its parameter; see the base class."""
        if "seed" in config:
            return {**config, "seed": seed}
        if "seed" not in template_names(self.command):
            raise UserError(
                "command: the program takes no seed, so it cannot be trained again under fresh "
                "ones; add --seed, '{seed}' in a new sweep"
            )
        return config

    def source(self) -> Mapping[str, str]:
        """The files that the command names, and what they import; see the base class."""
        found: dict[str, str] = {"command": hashlib.sha256(self.name.encode()).hexdigest()}
        for file in self.files():
            if file.suffix == ".py":
                found |= source_digests(file, file.parent)
            else:
                found[file.name] = hashlib.sha256(file.read_bytes()).hexdigest()
        return found

    def files(self) -> Iterator[Path]:
        """The files that the command names, without large ones."""
        for part in self.command:
            path = Path(part.partition("=")[2] if part.startswith("-") else part)
            if os.sep in part and os.path.isfile(path) and path.stat().st_size <= _MAX_SOURCE:
                yield path  # `Path.is_file` raises an error for a long text

    @property
    def folder(self) -> Path | None:
        """The folder of the first file that the command names and that is no interpreter."""
        parents = (file.absolute().parent.resolve() for file in self.files())
        return next((folder for folder in parents if folder.name not in _BINARIES), None)

    @functools.cache  # noqa: B019 - `resolve` makes few of them
    def _reads_environment(self) -> bool:
        """Whether the code mentions the variables of the parameters."""
        for file in self.files():
            imported = self.source() if file.suffix == ".py" else {}
            paths = [file, *(file.parent / name for name in imported)]
            if any(_MENTION in path.read_bytes() for path in paths if path.is_file()):
                return True
        return False


def _program_problem(command: Sequence[str]) -> str | None:
    """Why a program cannot be executed on this machine; None if it can be."""
    program, script = command[0], next(iter(command[1:]), "")
    path = Path(program)
    if program in PYTHON and script.endswith(".py") and not os.path.isfile(script):
        return f"there is no file {script}"
    if program in PYTHON or shutil.which(program, path=search_path()):
        return None
    if "/" not in program:
        near = f"; ./{program} is a file here" if path.is_file() else ""
        return f"there is no program '{program}' on PATH{near}"
    if not path.is_file():
        return f"there is no program {program}"
    return f"{program} is not executable; chmod +x it, or write [sh, {path.name}]"


def _same_variables(config: Mapping[str, Any]) -> Iterator[Problem]:
    """Parameters of which only one can be in the environment."""
    taken: dict[str, str] = {}
    for name in flattened(config):
        if (other := taken.setdefault(variable(name), name)) != name:
            problem = f"${variable(name)} is that of {other}, too; rename one"
            yield tuple(name.split(".")), problem
