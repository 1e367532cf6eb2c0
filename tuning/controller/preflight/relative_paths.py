"""Relative paths of a sweep file, and what `tune plan` and `tune run` note of such a file.

A path is beside the file, or else in the working directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from search_spaces.loading.sweep_file import LoadedSweep
from search_spaces.nested import walk
from search_spaces.spec.sweep import SweepSpec
from trainables.config import Problem
from trainables.registry import resolve
from tuning.controller.preflight.comparability import comparability_notes
from tuning.controller.preflight.samples import sample
from tuning.controller.preflight.search_notes import search_notes

_NAME = re.compile(r"([\w/.-]+)(?:\\s[*+?]?|\s)*[=:]")
"""A pattern that begins with a name and a separator."""
_SHELL_WORDS = ("|", "||", "&&", "&", ";", "<", ">", ">>", "2>&1")


def file_notes(loaded: LoadedSweep, *, files: bool) -> list[str]:
    """One line for each.

    Args:
        loaded: a file that `preflight` has passed.
        files: whether this machine has the files of the data.
    """
    notes = [*warn_relative_paths(loaded), *_warn_patterns(loaded), *_warn_shell(loaded.command)]
    notes += [*comparability_notes(loaded.spec), *search_notes(loaded.spec)]
    return [*notes, *data_notes(loaded)] if files else notes


def data_notes(loaded: LoadedSweep) -> list[str]:
    """What the data of a sweep is, by its first configuration."""
    spec = with_absolute_fixed(loaded)
    config = next((spec.nest(params) for params in sample(spec, 1)), None)
    model = resolve(spec.trainable).Config
    return [] if config is None else model.model_validate(config).notes()


def _warn_patterns(loaded: LoadedSweep) -> Iterator[str]:
    """Patterns of metrics whose names are also found within longer ones."""
    for name, pattern in loaded.spec.report_from.stdout.items():
        if begins := _NAME.match(pattern):
            yield (
                f"report_from.stdout.{name}: '{pattern}' is also found in x{begins[1]}=1; "
                r"begin it with \b to find whole names only"
            )


def _warn_shell(command: Sequence[str]) -> Iterator[str]:
    """Words of a command that only a shell understands."""
    if words := [word for word in command if word in _SHELL_WORDS]:
        yield (
            f"command: {words[0]!r} is an argument of {command[0]}, because no shell reads the "
            "command; for a pipe or a redirection write [sh, -c, '…']"
        )


def with_absolute_fixed(loaded: LoadedSweep) -> SweepSpec:
    """The sweep with the relative paths of `fixed` made absolute: trials run in other folders.

    They are relative to the folder of the sweep file, or else to the working directory.
    """
    model, folder = resolve(loaded.spec.trainable).Config, loaded.path.absolute().parent
    fixed = model.resolve_paths(loaded.spec.fixed, folder)
    return loaded.spec.model_copy(update={"fixed": fixed})


def relative_problems(loaded: LoadedSweep, config: Mapping[str, Any]) -> Iterator[Problem]:
    """Relative paths of a sampled configuration that are not made absolute: those of the space."""
    trainable, folder = resolve(loaded.spec.trainable), loaded.path.absolute().parent
    if not trainable.is_known:  # its paths are of its own program
        return
    now = dict(walk(trainable.Config.resolve_paths(dict(config), folder)))
    for place, before in walk(config):
        after = now.get(place)
        after = after[0] if isinstance(after, list) and after else after
        if isinstance(before, str) and after != before and not before.startswith(("/", "~")):
            words = "is relative to this folder, and trials run in others"
            yield tuple(map(str, place)), f"{before!r} {words}; write {after}"


def warn_relative_paths(loaded: LoadedSweep) -> list[str]:
    """A line on relative paths that are not beside the sweep file, but in the working directory."""
    folder, here = loaded.path.absolute().parent, Path.cwd()
    if folder.resolve() == here:
        return []
    spec = loaded.spec
    functions = [spec.named or "", *spec.user_code.named.values()]  # absolute if beside the file
    scripts = [name.rpartition(":")[0] for name in functions]
    found = [name for name in scripts if name.endswith(".py") and not os.path.isabs(name)]
    fixed = with_absolute_fixed(loaded).fixed
    for given, used in ((loaded.command, spec.command or ()), (spec.fixed, fixed)):
        now = dict(walk(used))
        for place, before in walk(given):
            after = now.get(place)
            after = after[0] if isinstance(after, list) and isinstance(before, str) else after
            path = Path(str(after).partition("=")[2] if str(after).startswith("-") else str(after))
            is_here = path.is_relative_to(here) and not path.is_relative_to(folder)
            found += [str(before)] if is_here and before != after else []
    names = ", ".join(dict.fromkeys(found))
    return [f"{names}: not beside {loaded.path.name}, taken from {here}"] if names else []
