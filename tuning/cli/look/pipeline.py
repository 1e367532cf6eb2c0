"""`tune show` of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuning.cli.formatting import duration, number, print_lines
from tuning.cli.run.plan_pipeline import stage_table

if TYPE_CHECKING:
    from rich.console import Console

    from results.models.stages import StageRecord
    from results.records.pipeline import PipelinePaths


def show_pipeline(paths: PipelinePaths, console: Console) -> None:
    """Print the stages of a pipeline: which are complete, and what each put out."""
    from results.models.stages import read_stages, stage_state
    from results.models.winners import winners_by_later_stages
    from results.sweep_folder.folder import pipeline_argument
    from results.sweep_folder.lock import current_driver
    from search_spaces.pipeline.graph import dependencies
    from search_spaces.pipeline.loading import load_pipeline

    pipeline, records = load_pipeline(paths.spec), read_stages(paths).stages
    driver, chosen = current_driver(paths.lock), winners_by_later_stages(pipeline, paths)
    table = stage_table("stage", "kind", "after", "state", "time", "put out")
    for name in pipeline.order:
        stage = pipeline.stages[name]
        record = records.get(name)
        table.add_row(
            name,
            stage.kind,
            ", ".join(dependencies(name, pipeline.stages)) or "-",
            stage_state(record, driven=driver is not None),
            duration(record.seconds) if record else "-",
            _put_out(record, chosen.get(name), getattr(stage, "choose_by", None)),
        )
    console.print(table)
    done = sum(record.done for name, record in records.items() if name in pipeline.stages)
    print_lines(console, f"{done} of {len(pipeline.stages)} stages complete")
    if driver:
        print_lines(console, f"driven by {driver}")
    elif done < len(pipeline.stages):
        print_lines(console, f"continue with: tune resume {pipeline_argument(paths)}")
    print_lines(console, f"a stage's trials: tune show {paths.name}/STAGE")


def _put_out(record: StageRecord | None, winner: str | None, chosen_by: str | None) -> str:
    """What a stage put out, and which of its models a later stage chose."""
    result = record.result if record else {}
    words = [f"{k} {number(v)}" for k, v in result.items() if not k.endswith("_hours")]
    return ", ".join([*words, *([f"{winner} by {chosen_by}"] if winner else [])]) or "-"
