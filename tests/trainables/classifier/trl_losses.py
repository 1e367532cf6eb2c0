"""The losses of trl's RewardTrainer on a few pairs: a reference for those of `classifier`.

    pip install trl==1.16.0
    python -m tests.trainables.classifier.trl_losses    # rewrites trl_losses.json beside this file

trl is no dependency of the tests, as it takes seconds to import; they read its numbers. Each step
takes all pairs, so that the order of the data has no effect.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from trainables.base import Split
from trainables.classifier.config import ClassifierConfig
from trainables.training.task import open_task

FILE = Path(__file__).with_suffix(".json")
STEPS = 5
ROWS = [
    {"question": f"Say {i} times {w[:2]}", "chosen": w * (1 + i % 3), "rejected": w[::-1] * i}
    for i in range(1, 9)
    for w in ("red", "a longer answer, of several words", "ok")
]
SETTINGS: dict[str, Any] = {
    "task": "reward",
    "center_rewards_coefficient": 0.05,
    "hidden_size": 32,
    "num_layers": 2,
    "vocab_size": 300,
    "sequence_length": 192,
    "max_steps": STEPS,
    "eval_every": 1,
    "learning_rate": 1e-2,
    "weight_decay": 0.1,
    "warmup_fraction": 0.0,
    "schedule": "constant",
}


def config(folder: Path) -> ClassifierConfig:
    """A configuration whose batch is the whole train split."""
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    data = {"source": "files", "paths": str(file)}
    given = ClassifierConfig.model_validate({**SETTINGS, "data": data})
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
        {
            "prompt": [{"role": "user", "content": row["question"]}],
            "chosen": [{"role": "assistant", "content": row["chosen"]}],
            "rejected": [{"role": "assistant", "content": row["rejected"]}],
        }
        for row in ROWS
        if row["question"] not in held
    ]
    assert len(rows) == given.batch_size
    arguments = trl.RewardConfig(
        output_dir=str(folder / "out"),
        max_steps=STEPS,
        per_device_train_batch_size=len(rows),
        learning_rate=given.learning_rate,
        weight_decay=given.weight_decay,
        adam_beta2=given.beta2,
        max_grad_norm=given.grad_clip or 0.0,
        lr_scheduler_type="constant",
        optim="adamw_torch",
        max_length=given.sequence_length + 1,
        center_rewards_coefficient=given.center_rewards_coefficient,
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = trl.RewardTrainer(
        model=str(folder / "model"), args=arguments, train_dataset=Dataset.from_list(rows)
    )
    trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def main() -> None:
    """Write the losses with the versions that computed them."""
    import torch
    import transformers
    import trl

    with tempfile.TemporaryDirectory() as folder:
        losses = losses_of_trl(Path(folder))
    versions = {m.__name__: m.__version__ for m in (trl, transformers, torch)}
    FILE.write_text(json.dumps({"versions": versions, "losses": losses}, indent=1) + "\n")


if __name__ == "__main__":
    main()
