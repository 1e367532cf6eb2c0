"""The losses of trl's SFTTrainer on a small data set: a reference for those of `sft`.

See `tests.trainables.trl_reference`. Each step takes all rows, so that the order of the data has no
effect.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.trainables import trl_reference
from tests.trainables.trl_reference import SMALL, arguments, talks, trained, written
from trainables.causal_lm.model.model import new_model, save_model
from trainables.sft.config import SFTConfig
from trainables.training.task import open_task

FILE = Path(__file__).with_suffix(".json")
WORDS = ("red", "blue", "a longer answer, of several words", "ok")
ROWS = [
    {"question": f"Say {i} {word[:3]}?", "answer": word * (1 + i % 3)}
    for i in range(12)
    for word in WORDS
]
SETTINGS: dict[str, Any] = {
    **trl_reference.SETTINGS,
    **SMALL,
    "sequence_length": 128,
    "eval_answers": 0,
}


def config(folder: Path, **changes: Any) -> SFTConfig:
    """A configuration whose batch is the whole train split."""
    given = SFTConfig.model_validate({**SETTINGS, "data": written(folder, ROWS), **changes})
    return given.model_copy(update={"batch_size": open_task(given, folder / "cache").size})


def train_rows(folder: Path) -> list[dict[str, str]]:
    """The rows of the train split: those that are in no other one."""
    data = open_task(config(folder), folder / "cache").dataset
    files = [data.folder / f"{split}.questions.jsonl" for split in ("selection", "test")]
    held = {json.loads(line)["question"] for f in files for line in f.read_text().splitlines()}
    return [row for row in ROWS if row["question"] not in held]


def losses_of_trl(folder: Path) -> list[float]:
    """The loss of each step, by trl."""
    import trl
    from datasets import Dataset

    given = config(folder, packing="none")
    task = open_task(given, folder / "cache")
    (folder / "model").mkdir()
    save_model(new_model(given, task.dataset), given, task.dataset, folder / "model")
    rows = [talks(row, prompt="question", completion="answer") for row in train_rows(folder)]
    assert len(rows) == given.batch_size
    made = arguments(
        given,
        folder,
        max_length=given.sequence_length + 1,
        completion_only_loss=True,
        packing=False,
        activation_checkpointing=False,
    )
    model, data = str(folder / "model"), Dataset.from_list(rows)
    trainer = trl.SFTTrainer(model=model, args=trl.SFTConfig(**made), train_dataset=data)
    return [line["loss"] for line in trained(trainer)]


if __name__ == "__main__":
    trl_reference.write(FILE, losses_of_trl)
