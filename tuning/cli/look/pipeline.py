"""`tune show` of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tuning.cli.formatting import duration, number, print_lines
from tuning.cli.look.facts import pipeline_facts
from tuning.cli.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from results.records.pipeline import PipelinePaths


def show_pipeline(paths: PipelinePaths, console: Console) -> None:
    """Print the stages of a pipeline: which are complete, and what each put out."""
    from results.sweep_folder.folder import pipeline_argument, sweep_argument

    facts = pipeline_facts(paths)
    rows = [
        [
            stage["name"],
            stage["kind"],
            ", ".join(stage["after"]) or "-",
            stage["state"],
            "-" if stage["seconds"] is None else duration(stage["seconds"]),
            _put_out(stage),
        ]
        for stage in facts["stages"]
    ]
    titles = ("stage", "kind", "after", "state", "time", "put out")
    console.print(Table.of(titles, rows, flexible=("after", "put out")))
    print_lines(console, f"{facts['done']} of {len(facts['stages'])} stages complete")
    if facts["driver"]:
        print_lines(console, f"driven by {facts['driver']}")
    elif facts["done"] < len(facts["stages"]):
        print_lines(console, f"continue with: tune resume {pipeline_argument(paths)}")
    sweeps = [one for stage in facts["stages"] if (one := paths.sweep(stage["name"])).is_sweep]
    if sweeps:
        print_lines(console, f"a stage's trials: tune show {sweep_argument(sweeps[-1])}")


def _put_out(stage: dict[str, Any]) -> str:
    """What a stage put out, and which of its models a later stage chose."""
    words = [f"{k} {number(v)}" for k, v in stage["result"].items() if not k.endswith("_hours")]
    winner = [f"{stage['winner']} by {stage['chosen_by']}"] if stage["winner"] else []
    return ", ".join([*words, *winner]) or "-"
