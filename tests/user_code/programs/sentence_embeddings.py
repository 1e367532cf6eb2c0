"""Sentence embeddings under Ray Train: a small BERT, mean pooling, and a contrastive loss.

Two sentences that say the same in other words are a pair. In a batch, each sentence must be nearest
to its partner (in-batch negatives, as MultipleNegativesRankingLoss of sentence-transformers).
"""

import os
import random
import tempfile

import ray.train.torch
import torch
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer
from torch.nn import functional as F
from transformers import BertConfig, BertModel

SYNONYMS = [
    ["big large huge", "small little tiny", "quick fast rapid", "old ancient aged"],
    ["dog hound", "car automobile", "child kid", "house home", "ship boat", "stone rock"],
    ["buys purchases", "sees notices", "fixes repairs", "starts begins", "moves shifts"],
    ["bread food", "coin money", "road street", "book novel", "shirt garment"],
]
WORDS = ["the", *" ".join(" ".join(kind) for kind in SYNONYMS).split()]
IDS = {word: at for at, word in enumerate(WORDS)}


def pairs(count, seed):
    """Token ids of `count` pairs of sentences: two tensors [count, words]."""
    draw = random.Random(seed)
    sides = [], []
    for _ in range(count):
        meanings = [draw.choice(kind).split() for kind in SYNONYMS]
        for side in sides:
            adjective, noun, verb, thing = (draw.choice(words) for words in meanings)
            side.append([IDS[w] for w in ("the", adjective, noun, verb, "the", thing)])
    return torch.tensor(sides[0]), torch.tensor(sides[1])


class Encoder(torch.nn.Module):
    def __init__(self, hidden_size):
        super().__init__()
        self.bert = BertModel(
            BertConfig(
                vocab_size=len(WORDS),
                hidden_size=hidden_size,
                intermediate_size=2 * hidden_size,
                num_hidden_layers=1,
                num_attention_heads=2,
            ),
            add_pooling_layer=False,
        )

    def forward(self, tokens):
        words = self.bert(input_ids=tokens).last_hidden_state
        return F.normalize(words.mean(1), dim=-1)


def contrastive_loss(left, right, temperature):
    similarity = left @ right.T / temperature
    targets = torch.arange(len(left), device=left.device)
    return (F.cross_entropy(similarity, targets) + F.cross_entropy(similarity.T, targets)) / 2


def evaluate(model, sentences, temperature):
    model.eval()
    with torch.no_grad():
        left, right = model(sentences).chunk(2)
    nearest = (left @ right.T).argmax(1).cpu() == torch.arange(len(left))
    loss = contrastive_loss(left, right, temperature)
    return {"loss": loss.item(), "recall_at_1": nearest.double().mean().item()}


def train_func(config):
    rank = ray.train.get_context().get_world_rank()
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(Encoder(config.get("hidden_size", 32)))
    device, temperature = ray.train.torch.get_device(), config.get("temperature", 0.1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    held_out = torch.cat(pairs(128, seed=1)).to(device)

    start = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            state = torch.load(os.path.join(folder, "model.pt"))
        getattr(model, "module", model).load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"] + 1

    for epoch in range(start, 6):
        torch.manual_seed(1000 * epoch + rank)  # of dropout
        model.train()
        for step in range(10):  # each rank makes its own pairs
            batch = torch.cat(pairs(32, seed=f"{rank} {epoch} {step}")).to(device)
            loss = contrastive_loss(*model(batch).chunk(2), temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        metrics = {**evaluate(model, held_out, temperature), "epoch": epoch}
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = None
            if rank == 0:
                weights = getattr(model, "module", model).state_dict()
                state = {"model": weights, "optimizer": optimizer.state_dict(), "epoch": epoch}
                torch.save(state, os.path.join(folder, "model.pt"))
                checkpoint = Checkpoint.from_directory(folder)
            ray.train.report(metrics, checkpoint=checkpoint)


if __name__ == "__main__":
    trainer = TorchTrainer(
        train_func,
        train_loop_config={"lr": 3e-3},
        scaling_config=ScalingConfig(num_workers=2, use_gpu=False),
    )
    print(trainer.fit().metrics)
