"""Adapters of the trainables that change a model which answers: `grpo` and `dpo`."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainables.examples import EXAMPLES
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.base import Split
from trainables.causal_lm.model.model import new_model
from trainables.job import Answer
from trainables.registry import resolve
from trainables.training.checkpoint import read_lineage, weights_digest
from trainables.training.task import open_task


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("grpo", {"learning_rate": 3e-2}),
        ("dpo", {}),
        ("dpo", {"loss": "orpo", "lora": {"rank": 4, "use_rslora": True}}),
        ("dpo", {"loss": "simpo", "gamma": 0.1, "lora": {"modules_to_save": ["model.norm"]}}),
        ("dpo", {"loss": "kto", "lora": {"rank": 4, "use_dora": True}}),
    ],
)
def test_an_adapter_learns_resumes_and_is_evaluated(
    tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    example, cache, kind = EXAMPLES[name], tmp_path / "cache", resolve(name)
    config = {**example.config, "lora": {"rank": 4}, "learning_rate": 3e-3, **changes}

    whole = run_trial(tmp_path / "whole", name, config, cache=cache)
    stopped = RecordingChannel({4: Answer.STOP})
    run_trial(tmp_path / "cut", name, config, cache=cache, channel=stopped)
    again = run_trial(tmp_path / "cut", name, config, cache=cache, attempt=2)
    assert {**stopped.curve, **again.curve} == whole.curve
    values = [report.metrics[example.learned] for report in whole.reports]
    assert values[-1] < values[0]

    saved = newest_checkpoint(tmp_path / "whole")
    assert "adapter_model.safetensors" in saved.manifest.files
    assert "model.safetensors" not in saved.manifest.files
    checked = kind.Config.model_validate(config)
    task = open_task(checked, cache)
    assert read_lineage(saved.folder) == weights_digest(new_model(task.config, task.dataset))
    scores = kind.evaluate(checked, saved.folder, Split.SELECTION, cache)
    last = whole.reports[-1].metrics
    assert scores == {metric: last[metric] for metric in scores}
