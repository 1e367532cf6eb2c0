"""The loss of `sft`: on answers only, over the whole batch, however it is computed."""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from results.trial_paths import TrialPaths
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import newest_checkpoint, run_trial
from tests.trainables.sft import trl_losses
from trainables.base import Split
from trainables.causal_lm.model.model import new_model
from trainables.causal_lm.model.objective import NextTokenLoss, next_token_loss
from trainables.registry import resolve
from trainables.sft.config import SFTConfig
from trainables.training.checkpoint import read_lineage
from trainables.training.task import open_task

SHAPE = {"hidden_size": 16, "num_layers": 1, "vocab_size": 300}
PRETRAINED = EXAMPLES["sft"].config
TINY = {k: v for k, v in PRETRAINED.items() if k != "pretrain"} | SHAPE


def write_rows(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_loss_is_that_of_transformers_with_labels(cache: Path) -> None:
    config = SFTConfig.model_validate({**TINY, "packing": "none"})
    task = open_task(config, cache)
    model: Any = new_model(config, task.dataset)
    tokens, counted = task.batch(np.arange(4), torch.device("cpu"))
    labels = tokens.masked_fill(~torch.cat([counted[:, :1] & False, counted], dim=1), -100)
    expected = model(input_ids=tokens, labels=labels).loss
    loss = NextTokenLoss(model, config)(tokens, counted)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(
        next_token_loss(model, config, "sum", tokens, counted) / loss, counted.sum().float()
    )


@pytest.mark.parametrize("packing", ["documents", "none"])
def test_losses_are_those_of_trl(tmp_path: Path, packing: str) -> None:
    """Of a model that learns for some steps: `trl_losses.py` says how trl computed them."""
    given = trl_losses.config(tmp_path, packing=packing).model_dump(exclude_unset=True)
    curve = run_trial(tmp_path / "t", "sft", given, cache=tmp_path / "cache").curve
    expected = json.loads(trl_losses.FILE.read_text())["losses"]
    assert [metrics["train_loss"] for metrics in curve.values()] == pytest.approx(
        expected, rel=1e-5
    )


def test_packed_conversations_have_the_losses_of_separate_ones(cache: Path) -> None:
    packed, apart = (
        open_task(SFTConfig.model_validate({**TINY, "packing": packing}), cache)
        for packing in ("documents", "none")
    )
    assert packed.size < apart.size / 2
    model = new_model(packed.config, packed.dataset)
    totals = []
    for task in (packed, apart):
        every = np.arange(task.size)
        losses = NextTokenLoss(model, task.config)(*task.batch(every, torch.device("cpu")))
        totals.append((losses, task.num_targets(every), task.num_items(every)))
    assert totals[0][1:] == totals[1][1:]
    torch.testing.assert_close(totals[0][0], totals[1][0])


@pytest.mark.parametrize("packing", ["documents", "none"])
def test_parts_of_a_batch_add_up_to_the_same_loss(
    tmp_path: Path, cache: Path, packing: str
) -> None:
    """Answers differ in length: the mean of the parts' means would be another one."""
    config = {**TINY, "packing": packing}
    whole = run_trial(tmp_path / "whole", "sft", config, cache=cache)
    parts = run_trial(tmp_path / "parts", "sft", {**config, "micro_batch_size": 1}, cache=cache)
    for step, metrics in parts.curve.items():
        assert metrics == pytest.approx(whole.curve[step], rel=1e-5), step


def test_epochs_are_steps_over_the_train_split(tmp_path: Path, cache: Path) -> None:
    config = {k: v for k, v in TINY.items() if k != "max_steps"} | {"epochs": 1.5}
    task = open_task(SFTConfig.model_validate(config), cache)
    steps = -(-3 * task.size // (2 * task.config.batch_size))
    assert list(run_trial(tmp_path / "t", "sft", config, cache=cache).curve)[-1] == steps
    problems = SFTConfig.problems({**config, "max_steps": 6})
    assert "only one of them has an effect" in problems[0][1]


def test_a_model_learns_to_answer(tmp_path: Path, cache: Path) -> None:
    """The answer follows from the question's last word: a model that learned it answers exactly."""
    rows = [
        {"question": f"Number {i} of {word}?", "answer": word[::-1]}
        for i, word in enumerate(random.Random(0).choices(("red", "blue"), k=150))
    ]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    config = {
        **TINY,
        "hidden_size": 32,
        "sequence_length": 64,
        "max_steps": 60,
        "eval_every": 60,
        "learning_rate": 2e-2,
        "eval_answers": 20,
        "max_new_tokens": 12,
        "data": {"source": "files", "paths": str(file)},
    }
    channel = run_trial(tmp_path / "t", "sft", config, cache=cache)
    assert channel.reports[-1].metrics["exact_match"] == 1.0
    written = TrialPaths(tmp_path / "t").answers(60).read_text().splitlines()
    lines = [json.loads(line) for line in written]
    assert all(line["answer"] == line["expected"] and line["match"] for line in lines)
    assert {line["answer"] for line in lines} == {"der", "eulb"}
    # one more base: the trained model is a start, with its chat template
    base = newest_checkpoint(tmp_path / "t").folder
    more = {k: v for k, v in config.items() if k not in SHAPE}
    more |= {"model_name_or_path": str(base), "learning_rate": 1e-9, "max_steps": 1}
    again = run_trial(tmp_path / "more", "sft", {**more, "lora": {"rank": 2}}, cache=cache)
    assert again.reports[-1].metrics["exact_match"] == 1.0
    too_long = SFTConfig.model_validate({**more, "sequence_length": 65})
    problem = "the model has 64 positions, got 65"
    assert too_long.missing_files() == [(("sequence_length",), problem)]


def test_trials_start_from_one_model_that_is_trained_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    made, lineages = [], []
    for label, rate in (("one", 1e-3), ("two", 2e-2)):
        run_trial(tmp_path / label, "sft", {**PRETRAINED, "learning_rate": rate}, cache=cache)
        weights = newest_checkpoint(tmp_path / label).folder
        lineages.append(read_lineage(weights))
        ((file),) = cache.glob("model-*/model.safetensors")
        made.append((file, file.stat().st_mtime_ns))
    assert made[0] == made[1]
    assert lineages[0] == lineages[1]
    given = {k: v for k, v in PRETRAINED.items() if k != "pretrain"}
    config = SFTConfig.model_validate({**given, "model_name_or_path": str(made[0][0].parent)})
    assert resolve("sft").initial(config, tmp_path, cache) == lineages[0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hidden_size": 32}, "hidden_size: no effect with pretrain, which has its own;"),
        ({"model_name_or_path": "gpt2"}, "pretrain and model_name_or_path exclude each other"),
        ({"pretrain": {"sequence_length": 8}}, "pretrain.sequence_length: it is that of the trial"),
        (
            {"pretrain": {"max_step": 3}},
            "pretrain.max_step: unknown hyperparameter 'max_step' (did",
        ),
    ],
)
def test_mistakes_in_the_start_are_named(changes: dict[str, Any], problem: str) -> None:
    ((_, text),) = SFTConfig.problems({**PRETRAINED, **changes})
    assert problem in text


def test_the_text_of_the_start_must_be_there() -> None:
    pretrain = {**PRETRAINED["pretrain"], "data": {"source": "files", "paths": "/no/*.txt"}}
    found = SFTConfig.model_validate({**PRETRAINED, "pretrain": pretrain}).missing_files()
    assert found == [(("pretrain", "data", "paths"), "no file matches /no/*.txt")]


def test_conversations_count_every_answer(tmp_path: Path, cache: Path) -> None:
    def talk(i: int) -> list[dict[str, str]]:
        return [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"Say {i}."},
            {"role": "assistant", "content": f"{i}!"},
            {"role": "user", "content": "Again."},
            {"role": "assistant", "content": f"{i}!!"},
        ]

    file = write_rows(tmp_path / "t.jsonl", [{"talk": talk(i)} for i in range(40)])
    data = {"source": "files", "paths": str(file), "messages": "talk"}
    config = SFTConfig.model_validate({**TINY, "packing": "none", "data": data})
    task = open_task(config, cache)
    tokenizer = Tokenizer.from_file(str(task.dataset.tokenizer_file))
    tokens, counted = task.batch(np.arange(1), torch.device("cpu"))
    answers = tokenizer.decode(tokens[0, 1:][counted[0]].tolist(), skip_special_tokens=False)
    number = answers.partition("!")[0]
    assert answers == f"{number}!<|endoftext|>{number}!!<|endoftext|>"
    assert number.isdigit()


def test_losses_of_named_sets_have_their_weights(tmp_path: Path, cache: Path) -> None:
    """Each in a format of its own; sums over the answers' tokens, and no mean of means."""
    talks = [
        {"conversations": [{"from": f, "value": f"{i}" * i} for f in ("human", "gpt") * 2]}
        for i in range(1, 20)
    ]
    rows = [{"instruction": f"Say {i}.", "input": "", "output": f"{i}"} for i in range(20)]
    chat, code = (
        str(write_rows(tmp_path / f"{i}.jsonl", found)) for i, found in enumerate((talks, rows))
    )
    sets = {"chat": {"paths": chat, "weight": 3}, "code": {"paths": code, "weight": 1}}
    data = {"source": "arithmetic", "max_rows": 90, "selection": sets}
    given = {**TINY, "eval_answers": 0, "eval_sequences": 99, "max_steps": 2, "data": data}
    (found,) = run_trial(tmp_path / "t", "sft", given, cache=cache).curve.values()
    mean = 0.75 * found["eval_loss/chat"] + 0.25 * found["eval_loss/code"]
    assert found["eval_loss"] == pytest.approx(mean)
    assert found["perplexity"] == pytest.approx(math.exp(mean))
    sft, weights = resolve("sft"), newest_checkpoint(tmp_path / "t").folder
    assert {"eval_loss/chat", "eval_loss/code"} <= set(sft.reported_metrics(given))
    config = SFTConfig.model_validate(given)
    assert config.notes()[-1] == "eval_loss: 0.75 of chat + 0.25 of code"
    for split in (Split.SELECTION, Split.TEST):
        whole, each = (f(config, weights, split, cache) for f in (sft.evaluate, sft.examples))
        assert {name: np.mean(values) for name, values in each.items()} == pytest.approx(whole)
    task: Any = open_task(config, cache)
    model = task.load_model(weights).eval()
    for name, one in task.dataset.sets.items():
        every = np.arange(len(one.lengths(Split.SELECTION)))
        tokens, counted = one.inputs(Split.SELECTION, every, torch.device("cpu"))
        loss = next_token_loss(model, config, "sum", tokens, counted) / counted.sum()
        assert found[f"eval_loss/{name}"] == pytest.approx(loss.item(), rel=1e-5)
