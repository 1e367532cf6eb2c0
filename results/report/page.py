"""Write HTML pages: text, tables and plots in one file that needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from results.storage.atomic import write_atomic

Message = tuple[str, dict[str, Any] | list[dict[str, Any]]]
"""A part of a page, by its kind: `head`, `trials`, `section` or `details`; JSON for page.js."""
SWEEP_SCRIPTS = ("page.js", "table.js", "charts.js", "linked.js", "trials.js")
TABLE_SCRIPTS = ("page.js", "table.js")


@dataclass(frozen=True)
class PageSection:
    """A part of the page: a title, and optionally lines of text, a plot and a table.

    Cells and lines are plain text; a cell may be `{"text": …, "href": …}` or `{"spark": [values]}`.

    Attributes:
        plot: a figure, or markup that escapes what users gave.
        place: orders sections, those of charts.js included.
    """

    title: str
    text: Sequence[str] = ()
    plot: go.Figure | Markup | None = None
    header: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = field(default_factory=list)
    place: float = 100

    @property
    def has_content(self) -> bool:
        """Whether there is something to show below the title."""
        return self.plot is not None or bool(self.rows)

    @property
    def key(self) -> str:
        """Identifies it on its page."""
        return re.sub(r"\W+", "-", self.title.lower()).strip("-")

    def message(self, order: int) -> dict[str, Any]:
        """The section for page.js; `order` is among sections of one place."""
        figure = str(self.plot.to_json()) if isinstance(self.plot, go.Figure) else "null"
        return {
            "key": self.key,
            "place": self.place + order / 1000,
            "title": self.title,
            "text": list(self.text),
            "header": list(self.header),
            "rows": [list(row) for row in self.rows],
            "figure": json.loads(figure),
            "html": self.plot if isinstance(self.plot, Markup) else "",
            "wide": bool(self.rows) or isinstance(self.plot, Markup),
        }


def section_messages(sections: Iterable[PageSection]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A message for each section that has something to show."""
    for order, section in enumerate(sections):
        if section.has_content:
            yield "section", section.message(order)


def write_page(
    target: Path,
    title: str,
    lead: Sequence[str],
    messages: Iterable[Message],
    *,
    winner: Sequence[str] = (),
    state: str = "",
    home: str = "",
    of_sweep: bool = False,
    plotly: bool = True,
) -> None:
    """Write a page atomically; it loads nothing.

    Args:
        target: the file.
        title, state, lead, winner: text at the top.
        messages: what it shows below.
        home: address of the page of all sweeps, if there is one.
        of_sweep: has trials, with charts and a page for each.
        plotly: contains plotly's code, for the plots.
    """
    scripts = SWEEP_SCRIPTS if of_sweep else TABLE_SCRIPTS
    html = render(
        title=title,
        lead=lead,
        winner=winner,
        state=state,
        home=home,
        messages=messages,
        plotly=Markup(get_plotlyjs()) if plotly else "",
        style=Markup(asset("page.css")),
        script=Markup("\n".join(asset(name) for name in scripts)),
    )
    write_atomic(target, html.encode())


def render(*, messages: Iterable[Message] = (), **given: object) -> str:
    """The HTML of a page; `given` are the variables of page.html, which it escapes."""
    texts = [(kind, script_json(data)) for kind, data in messages]
    return template("page.html").render(messages=texts, **given)


def template(name: str) -> Template:
    """A template of this package; it escapes what it is given."""
    loader = PackageLoader("results.report", "web")
    return Environment(loader=loader, autoescape=True).get_template(name)


@cache
def asset(name: str) -> str:
    """A style sheet or script that pages share."""
    return (files("results.report") / "web" / name).read_text(encoding="utf-8")


def script_json(data: object) -> Markup:
    """JSON as the content of a script element."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, default=str)
    return Markup(text.replace("<", "\\u003c"))


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
