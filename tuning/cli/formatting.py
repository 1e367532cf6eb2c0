"""Formats numbers, durations and states for the terminal; the console that prints them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from search_spaces.pipeline.stages import WholeBudget
    from search_spaces.spec.budget import BudgetSpec

_UNLIMITED_WIDTH = 10_000

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


def number(value: Any) -> str:
    """Four significant digits for floats; `-` for None."""
    if value is None:
        return "-"
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
    return console


def print_lines(console: Console, *lines: str | Text) -> None:
    """Print lines, wrapped between words; the terminal wraps paths and commands, to be copied."""
    for line in lines:
        is_copied = not console.is_terminal or any(mark in str(line) for mark in ("/", "tune "))
        console.print(line, soft_wrap=is_copied)
