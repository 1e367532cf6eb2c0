"""The losses of trl's RewardTrainer on a few pairs: a reference for those of `classifier`.

See `tests.trainables.trl_reference`. Each step takes all pairs, so that the order of the data has
no effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trainables import trl_reference
from tests.trainables.trl_reference import SMALL, arguments, talks, trained, written
from trainables.base import Split
from trainables.classifier.config import ClassifierConfig
from trainables.training.task import open_task

FILE = Path(__file__).with_suffix(".json")
ROWS = [
    {"question": f"Say {i} times {w[:2]}", "chosen": w * (1 + i % 3), "rejected": w[::-1] * i}
    for i in range(1, 9)
    for w in ("red", "a longer answer, of several words", "ok")
]
SETTINGS: dict[str, Any] = {
    **trl_reference.SETTINGS,
    **SMALL,
    "task": "reward",
    "center_rewards_coefficient": 0.05,
    "sequence_length": 192,
}


def config(folder: Path) -> ClassifierConfig:
    """A configuration whose batch is the whole train split."""
    given = ClassifierConfig.model_validate({**SETTINGS, "data": written(folder, ROWS)})
    return given.model_copy(update={"batch_size": open_task(given, folder / "cache").size})


def losses_of_trl(folder: Path) -> list[float]:
    """The loss of each step, by trl."""
    import trl
    from datasets import Dataset

    given = config(folder)
    task: Any = open_task(given, folder / "cache")
    (folder / "model").mkdir()
    task.save(task.new_model(), folder / "model")
    held = [
        question["question"]
        for split in (Split.SELECTION, Split.TEST)
        for question in task.dataset.questions(split)
    ]
    rows = [
        talks(row, prompt="question", chosen="chosen", rejected="rejected")
        for row in ROWS
        if row["question"] not in held
    ]
    assert len(rows) == given.batch_size
    made = arguments(
        given,
        folder,
        max_length=given.sequence_length + 1,
        center_rewards_coefficient=given.center_rewards_coefficient,
        activation_checkpointing=False,
    )
    model, data = str(folder / "model"), Dataset.from_list(rows)
    trainer = trl.RewardTrainer(model=model, args=trl.RewardConfig(**made), train_dataset=data)
    return [line["loss"] for line in trained(trainer)]


if __name__ == "__main__":
    trl_reference.write(FILE, losses_of_trl)
