"""Reads a sweep file into a validated `SweepSpec` with line numbers, and writes it back."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from search_spaces.domains.conditional import is_conditional_choice
from search_spaces.domains.domain import KINDS, is_domain_form
from search_spaces.errors import UserError
from search_spaces.limits import SECONDS, TooSlowError, wide_limits
from search_spaces.loading.explain import explain, meaning
from search_spaces.loading.overrides import apply_overrides
from search_spaces.loading.reader import Document, read_file
from search_spaces.nested import KeyPath, dotted, show, walk
from search_spaces.positions import Problem, Source
from search_spaces.redaction import also_redact
from search_spaces.spec.base import BEGUN, FROZEN
from search_spaces.spec.command import with_absolute_files
from search_spaces.spec.env_vars import original, references
from search_spaces.spec.sweep import ENV_FIELDS, SweepSpec

OPEN = "?"
"""Stands in a sweep file for a value that somebody has to fill in; no such file is accepted."""


@dataclass(frozen=True)
class LoadedSweep:
    """A validated sweep, and the position of each value.

    Attributes:
        spec: the file with the overrides applied.
        source: file and line of every key.
        path: path of the file.
        overrides: the `--set` texts, as given.
        code: files of training code to keep in the sweep folder.
        command: `spec.command` as written, with relative paths.
    """

    spec: SweepSpec
    source: Source
    path: Path
    overrides: tuple[str, ...]
    code: tuple[Path, ...] = ()
    command: tuple[str, ...] = ()


def load_sweep(
    path: Path, overrides: Sequence[str] = (), *, frozen: bool = False, begun: bool = False
) -> LoadedSweep:
    """Read and validate a sweep file.

    Args:
        path: of the YAML file.
        overrides: `a.b=c` texts, applied before validation.
        frozen: the file of a sweep folder, whose `${ENV}` is not expanded; see `expand_now`.
        begun: the file of a sweep folder, which has wide limits and keys of earlier versions; a
            frozen file has them too.

    Raises:
        UserError: all mistakes at once, one line each, in file order.
    """
    try:
        with wide_limits() if frozen or begun else nullcontext():
            document = apply_overrides(read_file(path), overrides)
            spec = _validate(document, FROZEN if frozen else BEGUN if begun else None)
    except TooSlowError:
        raise UserError(f"{path.name}: takes more than {SECONDS:g} s to read") from None
    except RecursionError:
        raise UserError(f"{path.name}: nested too deeply") from None
    found = spec if frozen else _with_absolute_files(spec, path.absolute().parent)
    written = tuple(spec.command or ())
    return LoadedSweep(found, document.source, path, tuple(overrides), command=written)


def check_sweep(
    data: dict[str, Any], source: Source, code: Sequence[Path] = (), folder: Path | None = None
) -> LoadedSweep:
    """Validate a sweep that is plain data, as a file of the same content is.

    Args:
        data: the keys of a sweep file.
        source: names the places of its values in messages.
        code: see `LoadedSweep`.
        folder: of relative paths; default: the working directory.

    Raises:
        UserError: all mistakes at once, one line each.
    """
    spec = _with_absolute_files(_validate(Document(data, source), None), folder or Path.cwd())
    return LoadedSweep(spec, source, (folder or Path()) / source.name, (), tuple(code))


def _with_absolute_files(spec: SweepSpec, folder: Path) -> SweepSpec:
    update: dict[str, Any] = {
        "named": spec.named and _script_in(spec.named, folder),
        "user_code": spec.user_code.mapped(lambda name: _script_in(name, folder)),
    }
    if spec.command is not None:
        update["command"] = with_absolute_files(spec.command, folder)
    return spec.model_copy(update=update)


def _script_in(name: str, folder: Path) -> str:
    """`path.py:function` with the path in a folder if such a file is there; else unchanged.

    What is not in the folder of the sweep file is looked up in the working directory.
    """
    script, _, function = name.rpartition(":")
    there = folder / script
    is_elsewhere = script.endswith(".py") and folder.resolve() != Path.cwd()
    return f"{there.resolve()}:{function}" if is_elsewhere and there.is_file() else name


def _validate(document: Document, context: str | None) -> SweepSpec:
    spec, found = _spec_and_problems(document, context)
    problems = [*document.problems, *found.values()]
    if spec is None or problems:
        raise UserError(*(problem.message for problem in sorted(problems, key=lambda p: p.order)))
    also_redact([*spec.redact, *references(original(spec.notify.webhook) or "")])
    return spec


def sweep_problems(data: dict[str, Any]) -> dict[KeyPath, str]:
    """What is wrong with a sweep that is plain data: the first mistake at each path."""
    source = Source("", {})
    found = _spec_and_problems(Document(data, source), None)[1]
    place = f"{source.where(())}: "
    return {path: problem.message.removeprefix(place) for path, problem in found.items()}


def _spec_and_problems(
    document: Document, context: str | None
) -> tuple[SweepSpec | None, dict[KeyPath, Problem]]:
    stray = {**dict(_stray_references(document)), **dict(_open_places(document))}
    try:
        spec = SweepSpec.model_validate(document.data, context=context)
    except ValidationError as error:
        refused = document.refused | stray.keys()
        found = dict(explain(error, document.source))
        return None, stray | {path: p for path, p in found.items() if path not in refused}
    return spec, stray


def _open_places(document: Document) -> Iterator[tuple[KeyPath, Problem]]:
    """Where `OPEN` stands in place of a value; among the values of a parameter it is plain text."""
    for path, value in walk(document.data):
        above = path[1:-1]
        is_data = path[:1] == ("fixed",) or any(k in KINDS or isinstance(k, int) for k in above)
        if value == OPEN and not is_data:
            text = f"'{OPEN}' is to be filled in: {meaning(path)}"
            yield path, document.source.problem(path, text)


def _stray_references(document: Document) -> Iterator[tuple[KeyPath, Problem]]:
    for path, value in walk(document.data):
        if isinstance(value, str) and "${" in value and path not in ENV_FIELDS:
            fields = ", ".join(sorted(map(dotted, ENV_FIELDS)))
            text = f"${{ENV}} is expanded in {fields} only, got {show(value)}"
            yield path, document.source.problem(path, text)


def dump_sweep(spec: SweepSpec) -> str:
    """Write a spec as YAML that `load_sweep` reads back to an equal spec.

    `${ENV}` is not expanded, because the value may be a secret.
    """
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.allow_unicode = False  # some Unicode line separators would not be read back
    yaml.width = 2**31  # never fold: some folded lines would not be read back
    yaml.representer.ignore_aliases = lambda _: True
    text = io.StringIO()
    data = spec.model_dump()
    del data["trainable" if spec.command else "command"]
    yaml.dump(data | {"space": _one_line_domains(data["space"])}, text)
    return text.getvalue()


def _one_line_domains(node: Any) -> Any:
    if isinstance(node, dict) and is_domain_form(node) and not is_conditional_choice(node):
        line = CommentedMap(node)
        line.fa.set_flow_style()
        return line
    if isinstance(node, dict):
        return {key: _one_line_domains(part) for key, part in node.items()}
    return [_one_line_domains(part) for part in node] if isinstance(node, list) else node
