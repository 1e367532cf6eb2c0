"""Hugging Face `Trainer` under Ray Train, with its report callback and a relative `output_dir`."""

import os

import ray.train
import ray.train.huggingface.transformers
import torch
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)


class Sentences(torch.utils.data.Dataset):
    """Random tokens; the label says whether the first one is large."""

    def __init__(self, size, seed):
        generator = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 100, (size, 8), generator=generator)

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {"input_ids": tokens, "labels": int(tokens[0] >= 50)}


def train_func(config):
    set_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    model = BertForSequenceClassification(
        BertConfig(vocab_size=100, num_hidden_layers=1, num_labels=2, **small)
    )
    args = TrainingArguments(
        output_dir="test_trainer",
        learning_rate=config["learning_rate"],
        num_train_epochs=6,
        per_device_train_batch_size=16,
        eval_strategy="epoch",
        save_strategy="epoch",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(
        model=model, args=args, train_dataset=Sentences(128, 0), eval_dataset=Sentences(64, 1)
    )
    trainer.add_callback(ray.train.huggingface.transformers.RayTrainReportCallback())
    trainer = ray.train.huggingface.transformers.prepare_trainer(trainer)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            trainer.train(resume_from_checkpoint=os.path.join(folder, "checkpoint"))
    else:
        trainer.train()


if __name__ == "__main__":
    scaling = ScalingConfig(num_workers=2)
    trainer = TorchTrainer(
        train_func, train_loop_config={"learning_rate": 1e-3}, scaling_config=scaling
    )
    print(trainer.fit().metrics)
