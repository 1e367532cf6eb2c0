"""The losses of trl's trainers of preferences on a small data set: a reference for those of `dpo`.

See `tests.trainables.trl_reference`. It gets the token ids and the batches of `dpo`: the templates
of its older trainers are others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.trainables import trl_reference
from tests.trainables.examples import EXAMPLES
from trainables.base import Split
from trainables.causal_lm.model.model import new_model, save_model
from trainables.dpo.config import DPOConfig
from trainables.training.data_sampler import Sampler
from trainables.training.task import open_task

FILE = Path(__file__).with_suffix(".json")
SEED = 0
LOSSES: dict[str, dict[str, Any]] = {
    "sigmoid": {"loss": "sigmoid"},
    "ipo": {"loss": "ipo"},
    "orpo": {"loss": "orpo", "beta": 0.7},
    "simpo": {"loss": "simpo", "beta": 2.0, "gamma": 0.3, "label_smoothing": 0.05},
    "kto": {"loss": "kto", "desirable_weight": 1.3, "undesirable_weight": 0.7, "beta": 0.5},
}
SETTINGS: dict[str, Any] = {
    **EXAMPLES["dpo"].config,
    **trl_reference.SETTINGS,
    "batch_size": 6,
}


def rows_of(task: Any) -> list[dict[str, Any]]:
    """The samples of all steps in order, as token ids."""
    data, config = task.dataset, task.config
    sampler = Sampler(task.size, config.batch_size, SEED)
    tokens, counted = data.sequences(Split.TRAIN), data.counted(Split.TRAIN)
    lengths = data.lengths(Split.TRAIN)

    def parts(answer: int) -> tuple[list[int], list[int]]:
        start = int(counted[answer].argmax()) + 1
        ids = tokens[answer, : lengths[answer]].tolist()
        return ids[:start], ids[start:]

    def pair(row: int) -> dict[str, Any]:
        (prompt, chosen), (_, rejected) = parts(2 * row), parts(2 * row + 1)
        texts = dict.fromkeys(("prompt", "chosen", "rejected"), "")
        found = {**texts, "prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
        for name, answer in (("chosen", chosen), ("rejected", rejected)):
            found[f"{name}_input_ids"] = prompt + answer
            found[f"{name}_attention_mask"] = [1] * len(prompt + answer)
            found[f"{name}_labels"] = [-100] * len(prompt) + answer
        return found

    def single(row: int, before: int) -> dict[str, Any]:
        (prompt, answer), (_, other) = parts(row), parts(before)
        ids = {"prompt_ids": prompt, "completion_ids": answer, "KL_completion_ids": other}
        return {**ids, "label": row % 2 == 0}

    batches = [sampler.batch_rows(step).tolist() for step in range(config.max_steps)]
    if config.loss == "kto":
        twos = [(2 * b[i] + k, 2 * b[i - 1] + k) for b in batches for i in range(6) for k in (0, 1)]
        return [single(*two) for two in twos]
    return [pair(row) for batch in batches for row in batch]


def trainer_of(config: DPOConfig) -> tuple[Any, Any, dict[str, Any]]:
    """trl's trainer, the class of its arguments, and those of the loss."""
    import trl
    from trl.experimental import cpo, orpo

    weights = {n: getattr(config, n) for n in ("desirable_weight", "undesirable_weight")}
    simpo: dict[str, Any] = {"loss_type": "simpo", "cpo_alpha": 0.0, "simpo_gamma": config.gamma}
    simpo["label_smoothing"] = config.label_smoothing  # its DPO has none
    return {
        "sigmoid": (trl.DPOTrainer, trl.DPOConfig, {"loss_type": "sigmoid"}),
        "ipo": (trl.DPOTrainer, trl.DPOConfig, {"loss_type": "ipo"}),
        "orpo": (orpo.ORPOTrainer, orpo.ORPOConfig, {}),
        "simpo": (cpo.CPOTrainer, cpo.CPOConfig, simpo),
        "kto": (trl.KTOTrainer, trl.KTOConfig, weights),
    }[config.loss]


def losses_of_trl(folder: Path, changes: dict[str, Any]) -> list[dict[str, float]]:
    """Loss, norm of the gradient and divergence in each step, by trl."""
    from datasets import Dataset
    from torch.utils.data import SequentialSampler
    from transformers import AutoModelForCausalLM, AutoTokenizer

    config = DPOConfig.model_validate({**SETTINGS, **changes})
    task: Any = open_task(config, folder / "cache")
    model = folder / "model"
    model.mkdir(exist_ok=True)
    save_model(new_model(task.config, task.dataset), task.config, task.dataset, model)
    kind, of_trainer, given = trainer_of(config)

    class Trainer(kind):  # type: ignore[misc, valid-type]
        def _prepare_dataset(self, dataset: Any, *others: Any) -> Any:
            return dataset

        def tokenize_row(self, feature: Any, *others: Any) -> Any:
            return feature

        def _get_train_sampler(self, dataset: Any = None) -> Any:
            return SequentialSampler(self.train_dataset)

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    network: Any = AutoModelForCausalLM
    made = trl_reference.arguments(
        config,
        folder,
        beta=config.beta,
        per_device_train_batch_size=config.batch_size * (1 + (config.loss == "kto")),
        warmup_steps=0,
        gradient_checkpointing=False,
        **given,
    )
    trainer = Trainer(
        model=network.from_pretrained(model),
        args=of_trainer(**made),
        train_dataset=Dataset.from_list(rows_of(task)),
        processing_class=tokenizer,
    )
    steps = trl_reference.trained(trainer)
    names = {"train_loss": "loss", "grad_norm": "grad_norm", "kl": "kl"}
    return [{mine: step[n] for mine, n in names.items() if n in step} for step in steps]


def all_losses(folder: Path) -> dict[str, Any]:
    """Of each loss, by its name."""
    return {name: losses_of_trl(folder, each) for name, each in LOSSES.items()}


if __name__ == "__main__":
    trl_reference.write(FILE, all_losses)
