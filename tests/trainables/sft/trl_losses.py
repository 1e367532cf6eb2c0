"""The losses of trl's SFTTrainer on a small data set: a reference for those of `sft`.

    pip install trl==1.16.0
    python -m tests.trainables.sft.trl_losses      # rewrites trl_losses.json beside this file

trl is no dependency of the tests, as it takes seconds to import; they read its numbers. Each step
takes all rows, so that the order of the data has no effect.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from trainables.causal_lm.model.model import new_model, save_model
from trainables.sft.config import SFTConfig
from trainables.training.task import open_task

FILE = Path(__file__).with_suffix(".json")
STEPS = 5
WORDS = ("red", "blue", "a longer answer, of several words", "ok")
ROWS = [
    {"question": f"Say {i} {word[:3]}?", "answer": word * (1 + i % 3)}
    for i in range(12)
    for word in WORDS
]
SETTINGS: dict[str, Any] = {
    "hidden_size": 32,
    "num_layers": 2,
    "vocab_size": 300,
    "sequence_length": 128,
    "max_steps": STEPS,
    "eval_every": 1,
    "eval_answers": 0,
    "learning_rate": 1e-2,
    "weight_decay": 0.1,
    "warmup_fraction": 0.0,
    "schedule": "constant",
}


def config(folder: Path, **changes: Any) -> SFTConfig:
    """A configuration whose batch is the whole train split."""
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    data = {"source": "files", "paths": str(file)}
    given = SFTConfig.model_validate({**SETTINGS, "data": data, **changes})
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
    rows = [
        {
            "prompt": [{"role": "user", "content": row["question"]}],
            "completion": [{"role": "assistant", "content": row["answer"]}],
        }
        for row in train_rows(folder)
    ]
    assert len(rows) == given.batch_size
    arguments = trl.SFTConfig(
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
        completion_only_loss=True,
        packing=False,
        use_cpu=True,
        bf16=False,
        activation_checkpointing=False,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = trl.SFTTrainer(
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
