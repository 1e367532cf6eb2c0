"""Write HTML pages: text, tables and plots in one file that needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from results.storage.atomic import write_atomic


@dataclass(frozen=True)
class PageSection:
    """A part of the page: a title, and optionally lines of text, a plot and a table.

    Cells and lines are plain text; the template escapes them.
    """

    title: str
    text: Sequence[str] = ()
    plot: go.Figure | Markup | None = None
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = field(default_factory=list)

    @property
    def has_content(self) -> bool:
        """Whether there is something to show below the title."""
        return self.plot is not None or bool(self.rows)

    @property
    def key(self) -> str:
        """Identifies it on its page."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")


def write_page(
    target: Path,
    title: str,
    lead: Sequence[str],
    winner: Sequence[str],
    sections: Sequence[PageSection],
    *,
    plotly: bool = True,
) -> None:
    """Write a page atomically; it loads nothing.

    Args:
        target: the file.
        title, lead, winner, sections: what it shows, from top to bottom.
        plotly: contains plotly's code, for the plots.
    """
    html = template("page.html").render(
        title=title,
        lead=lead,
        winner=winner,
        sections=sections,
        plotly=Markup(get_plotlyjs()) if plotly else "",
        style=Markup(asset("page.css")),
        script=Markup(asset("page.js")),
        plot=_plot,
    )
    write_atomic(target, html.encode())


def template(name: str) -> Template:
    """A template of this package; it escapes what it is given."""
    return Environment(loader=PackageLoader("results.report", "."), autoescape=True).get_template(
        name
    )


@cache
def asset(name: str) -> str:
    """A style sheet or script that pages share."""
    return (files("results.report") / name).read_text(encoding="utf-8")


def figure_json(figure: go.Figure) -> str:
    """A figure for `drawIn` of page.js; also as the content of a script element."""
    return str(figure.to_json()).replace("<", "\\u003c")


def _plot(drawn: go.Figure | Markup) -> Markup:
    if isinstance(drawn, Markup):
        return drawn
    data = f'<script type="application/json">{figure_json(drawn)}</script>'
    return Markup(f'<div class="wide"><div class="plot">{data}</div></div>')


@dataclass(frozen=True)
class TimeUnit:
    """A unit of time.

    Attributes:
        name: plural, as in `worker-hours`.
        symbol: written after a number.
        seconds: in one unit.
    """

    name: str
    symbol: str
    seconds: float

    def format(self, seconds: float) -> str:
        """A time in this unit with three digits, without the symbol."""
        return f"{seconds / self.seconds:.3g}"


_UNITS = (
    TimeUnit("hours", "h", 3600.0),
    TimeUnit("minutes", "min", 60.0),
    TimeUnit("seconds", "s", 1.0),
)


def unit_for(seconds: float) -> TimeUnit:
    """The unit for a total time and its parts: the largest of which there are at least two."""
    return next((u for u in _UNITS if seconds >= 2 * u.seconds), _UNITS[-1])


def setting(value: object) -> str:
    """A parameter's value as in YAML; floats with five digits."""
    return number(value) if isinstance(value, float | str) else json.dumps(value, default=str)


def number(value: object) -> str:
    """Five significant digits for floats; `-` for None."""
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
