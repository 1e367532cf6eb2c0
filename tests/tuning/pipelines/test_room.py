"""Stages that run at once: workers that fit the machines, and what is left of the budget."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.models.stages import StageRecord, StageRecords, write_stages
from results.records.pipeline import PipelinePaths
from search_spaces.errors import UserError
from search_spaces.pipeline.loading import LoadedPipeline, load_pipeline
from tuning.controller.resources.placement import Node
from tuning.pipelines.capacity import fit_together, left_of_budget

TRAIN = """
  - name: {name}
    kind: train
    from: []
    sweep: {{trainable: digits, metric: eval_loss, scheduler: {{name: none}}, budget: {budget},
            space: {{learning_rate: {{loguniform: [1e-3, 0.1]}}}}}}
"""


@pytest.mark.parametrize(
    ("workers", "nodes", "fit"),
    [
        ([(1.0, 0.0)] * 4, [Node(2, 0), Node(2, 0)], True),
        ([(1.0, 0.0)] * 5, [Node(2, 0), Node(2, 0)], False),
        ([(3.0, 0.0)], [Node(2, 0), Node(2, 0)], False),  # a worker does not span machines
        ([(2.0, 0.0), (1.0, 1.0)], [Node(2, 1), Node(2, 0)], True),
        ([(2.0, 0.0), (1.0, 1.0), (1.0, 0.0)], [Node(2, 1), Node(2, 0)], True),
        ([(1.0, 0.5)] * 3, [Node(8, 1)], False),
        ([], [], True),
    ],
)
def test_workers_fit_machines(
    workers: list[tuple[float, float]], nodes: list[Node], fit: bool
) -> None:
    assert fit_together(workers, nodes) is fit


def pipeline(folder: Path, whole: str, *budgets: str) -> LoadedPipeline:
    stages = [TRAIN.format(name=f"s{i}", budget=budget) for i, budget in enumerate(budgets)]
    file = folder / "p.yaml"
    file.write_text(f"name: p\nbudget: {whole}\nstages:" + "".join(stages))
    return load_pipeline(file)


def test_a_stage_that_is_about_to_run_keeps_what_it_may_use(tmp_path: Path) -> None:
    made = pipeline(tmp_path, "{trials: 8}", "{trials: 6}", "{trials: 6}")
    paths = PipelinePaths(tmp_path / "p")
    assert left_of_budget(made, paths, "s1") == {"trials": 8}
    assert left_of_budget(made, paths, "s1", ["s0"]) == {"trials": 2}
    paths.root.mkdir()
    write_stages(paths, StageRecords({"s0": StageRecord("key", 0.0)}))
    assert left_of_budget(made, paths, "s1") == {"trials": 2}  # it runs, in another process
    write_stages(paths, StageRecords({"s0": StageRecord("key", 0.0, done=True)}))
    assert left_of_budget(made, paths, "s1") == {"trials": 8}


def test_a_stage_without_a_limit_of_its_own_may_use_the_whole(tmp_path: Path) -> None:
    made = pipeline(tmp_path, "{cpu_hours: 2}", "{trials: 6}", "{trials: 6}")
    with pytest.raises(UserError, match=r"is spent: 2 of 2 cpu_hours"):
        left_of_budget(made, PipelinePaths(tmp_path / "p"), "s1", ["s0"])
    timed = pipeline(tmp_path, "{time: 1h}", "{trials: 6}", "{trials: 6}")
    assert left_of_budget(timed, PipelinePaths(tmp_path / "p"), "s1", ["s0"]) == {"time": 3600}
