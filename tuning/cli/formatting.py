"""Formats numbers, durations and states for the terminal; the console that prints them."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from search_spaces.pipeline.stages import WholeBudget
    from search_spaces.spec.budget import BudgetSpec

_LEAST_WIDTH = 20
"""A terminal without a size says 0, and nothing would be printed."""
_UNLIMITED_WIDTH = 10_000
_LABEL = re.compile(r"\w+ {2,}| *")
_WHOLE = re.compile(r"\btune [a-z]+(?: [^\s;:,()]+)*\s*|\S+\s*|\s+")
"""A command with its arguments, or a word; with the spaces behind."""

_STYLES = {
    "running": "cyan",
    "completed": "green",
    "stopped": "yellow",
    "failed": "red",
    "pending": "dim",
    "paused": "blue",
}


_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)
"""What a terminal obeys: control characters but tab and newline, and changes of the direction of
text; line separators, lone surrogates and invisible tags, which are shown for the same reason."""


def shown(text: str) -> str:
    """The text with what a terminal would obey made visible, such as `\\x1b[2J`.

    A name, an error or a log of a stranger's sweep must not move the cursor or hide a line.
    """
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def echo(text: str, err: bool = False, nl: bool = True) -> None:
    """Print plain text, with control characters made visible."""
    typer.echo(shown(text), err=err, nl=nl)


def tell(text: str, err: bool = False) -> None:
    """Print a sentence: on a terminal as `wrapped`. Logs and JSON keep their lines: `echo`."""
    stream = sys.stderr if err else sys.stdout  # None: closed when the process began
    typer.echo(wrapped(text) if stream and stream.isatty() else shown(text), err=err)


def wrapped(text: str, width: int = 0) -> str:
    """The text as lines of at most so many cells (0: of the terminal), broken at spaces.

    Behind a label, such as `why        `, they have its indentation. A command stays on one line
    where it fits, and a longer path goes on at the terminal's edge, so that both can be copied.
    """
    width = width or shutil.get_terminal_size().columns
    return "\n".join(_wrapped_line(line, width) for line in shown(text).split("\n"))


def _wrapped_line(line: str, width: int) -> str:
    from rich.cells import cell_len

    if cell_len(line) <= width:
        return line
    lines, indent = [""], len(_LABEL.findall(line)[0])
    for part in _WHOLE.findall(line):
        for word in [part] if cell_len(part) <= width else re.findall(r"\S+\s*", part):
            if lines[-1].strip() and cell_len(lines[-1] + word.rstrip()) > width:
                lines.append(" " * indent)
            lines[-1] += word
    return "\n".join(line.rstrip() for line in lines)


def local_path(path: Path) -> str:
    """For a terminal a path relative to the current folder, if it is in there."""
    near = sys.stdout and sys.stdout.isatty() and path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd()) if near else path)


def number(value: Any) -> str:
    """At least four digits for floats, without an exponent up to 10 million; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, float) and 1e4 <= abs(value) < 1e7:
        return f"{value:.0f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def setting(value: Any) -> str:
    """A parameter's value as YAML writes it (`null`, `true`); floats with four digits."""
    if value is None or isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return number(value)


def duration(seconds: float | None) -> str:
    """`42s`, `3m07s`, `2h05m`, `1d03h`."""
    s = int(seconds or 0)
    if s < 60:
        return f"{s}s"
    if s < 3600:
        return f"{s // 60}m{s % 60:02d}s"
    if s < 86400:
        return f"{s // 3600}h{s % 3600 // 60:02d}m"
    return f"{s // 86400}d{s % 86400 // 3600:02d}h"


def limits(budget: BudgetSpec | WholeBudget) -> str:
    """The limits of a budget, in words."""
    phrases = {
        "trials": "{} trials",
        "cpu_hours": "{} CPU-hours",
        "gpu_hours": "{} GPU-hours",
        "cost": "a cost of {}",
        "target": "a value of {}",
        "patience": "{} trials without a new best",
        "min_improvement": "a possible improvement below {}",
    }
    given = budget.model_dump(exclude_none=True)
    limits = [phrases[key].format(number(v)) for key, v in given.items() if key != "time"]
    limits += [f"{duration(budget.time)} of wall-clock"] if budget.time else []
    return " or ".join(limits)


def size(num_bytes: float) -> str:
    """Bytes as `12.3 MB`, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def state_style(state: str) -> str:
    """The colour of a trial's state."""
    return _STYLES.get(state, "")


def make_console() -> Console:
    """The console for commands: no markup, and no line breaks when the output is not a terminal.

    Error messages and paths may contain brackets, which Rich would parse as markup. Rich's own
    control codes pass; those of the printed text are made visible.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class ShownConsole(Console):
        def on_broken_pipe(self) -> None:
            """Leave it to `guarded_output`; Rich would end the process with exit code 1."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else shown(text), style, control)

    console = ShownConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNLIMITED_WIDTH
    elif console.width < _LEAST_WIDTH:  # a width that is set does not follow the terminal
        console.width = _LEAST_WIDTH
    return console


def print_lines(console: Console, *lines: str | Text) -> None:
    """Print lines as `wrapped`; of styled ones the terminal wraps paths and commands."""
    for line in lines:
        is_copied = not console.is_terminal or any(mark in line for mark in ("/", "tune "))
        if console.is_terminal and isinstance(line, str):
            line, is_copied = wrapped(line, console.width), True
        console.print(line, soft_wrap=is_copied)
