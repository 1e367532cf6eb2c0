"""The losses and outputs of `classifier` against those of `transformers` and trl, and its rows."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertTokenizerFast,
)

from results.export.exportable import ModelSource
from results.export.formats.torch_export import TorchExport
from search_spaces.errors import UserError
from tests.trainables.classifier import trl_losses
from tests.trainables.examples import EXAMPLES
from tests.trainables.local import RecordingChannel, newest_checkpoint, run_trial
from trainables.base import Split
from trainables.classifier.config import ClassifierConfig
from trainables.job import Answer
from trainables.registry import resolve
from trainables.training.task import open_task

CPU = torch.device("cpu")
WORDS = ["good", "bad", "fine", "poor", "red", "blue", "film", "book", "song", "was", "is"]
LABELS = ("pos", "neg")


def rows_of(count: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(count):
        words = rng.choice(WORDS[4:], 3 + i % 4).tolist()
        words[0] = WORDS[2 * (i % 3 % 2) + i % 2]  # good or fine: pos
        pair = " ".join(rng.choice(WORDS, 2 + i % 3))
        rows.append({"a": f"{i} " + " ".join(words), "b": pair, "y": LABELS[i % 2]})
    return rows


def write(file: Path, rows: Sequence[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def bert(folder: Path, **labels: Any) -> str:
    """A small BERT with its tokenizer."""
    vocabulary = {
        w: n for n, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    }
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer: Any = BertTokenizerFast(tokenizer_object=backend)
    tokenizer.save_pretrained(folder)
    shape = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        **labels,
    )
    torch.manual_seed(0)
    BertForSequenceClassification(shape).save_pretrained(folder)
    return str(folder)


def config_of(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """A configuration of pairs of texts, for a pretrained BERT."""
    data = {"source": "files", "paths": write(tmp_path / "rows.jsonl", rows_of(90))}
    data |= {"text": "a", "text_pair": "b", "label": "y", **changes.pop("data", {})}
    fixed = {"model_name_or_path": bert(tmp_path / "bert"), "sequence_length": 24}
    return {**fixed, "batch_size": 8, "max_steps": 4, "eval_every": 2, "data": data, **changes}


def test_losses_of_a_reward_model_are_those_of_trl(tmp_path: Path) -> None:
    given = trl_losses.config(tmp_path).model_dump(exclude_unset=True)
    curve = run_trial(tmp_path / "t", "classifier", given, cache=tmp_path / "cache").curve
    expected = json.loads(trl_losses.FILE.read_text())["losses"]
    found = [metrics["train_loss"] for metrics in curve.values()]
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("task", ["labels", "regression"])
def test_loss_and_gradients_of_pairs_are_those_of_transformers(tmp_path: Path, task: str) -> None:
    rows = [{**row, "y": i % 7 / 2} for i, row in enumerate(rows_of(60))]
    data = {"paths": write(tmp_path / "numbers.jsonl", rows)} if task == "regression" else {}
    config = ClassifierConfig.model_validate(config_of(tmp_path, task=task, data=data))
    ours: Any = open_task(config, tmp_path / "cache")
    model, rows_ = ours.new_model(), np.arange(6)
    objective = ours.objective(model)
    loss = objective(*ours.batch(rows_, CPU))
    loss.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    ids, mask, types, targets, _ = ours.batch(rows_, CPU)
    assert types is not None
    assert types.any()
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    plain = model(**given, labels=targets).loss
    plain.backward()
    torch.testing.assert_close(loss, plain)
    torch.testing.assert_close(gradients, [p.grad for p in model.parameters()])


@pytest.mark.parametrize("weights", ["balanced", {"pos": 3.0}])
def test_class_weights_are_those_of_torch_and_scikit_learn(tmp_path: Path, weights: Any) -> None:
    from sklearn.utils.class_weight import compute_class_weight

    config = ClassifierConfig.model_validate(config_of(tmp_path, class_weights=weights))
    task: Any = open_task(config, tmp_path / "cache")
    targets = task.dataset.targets(Split.TRAIN)
    by_label = [1.0, 3.0]
    if weights == "balanced":
        by_label = compute_class_weight("balanced", classes=np.arange(2), y=targets).tolist()
    rows, model = np.arange(7), task.new_model()
    ids, mask, types, labels, _ = inputs = task.batch(rows, CPU)
    logits = model(input_ids=ids, attention_mask=mask, token_type_ids=types).logits
    expected = torch.nn.CrossEntropyLoss(torch.tensor(by_label))(logits, labels)
    torch.testing.assert_close(task.objective(model)(*inputs), expected)
    assert task.num_targets(rows) == pytest.approx(sum(by_label[t] for t in targets[rows]))


def test_export_is_a_plain_folder_that_predicts_the_same(tmp_path: Path) -> None:
    config, cache = config_of(tmp_path), tmp_path / "cache"
    run_trial(tmp_path / "t", "classifier", config, cache=cache)
    trained, trainable = newest_checkpoint(tmp_path / "t").folder, resolve("classifier")
    given, out = ClassifierConfig.model_validate(config), tmp_path / "out"
    out.mkdir()
    trainable.export_hf(given, trained, out, cache)
    model: Any = AutoModelForSequenceClassification.from_pretrained(out)
    tokenizer: Any = AutoTokenizer.from_pretrained(out)
    assert model.config.label2id == {"neg": 0, "pos": 1}
    rows = rows_of(5)
    unlabelled = write(tmp_path / "new.jsonl", [{"a": r["a"], "b": r["b"]} for r in rows])
    predict = trainable.exportable(given, trained, cache).predict
    assert predict is not None
    lines = list(predict(Path(unlabelled)))
    texts = [r["a"] for r in rows], [r["b"] for r in rows]
    logits = model(**tokenizer(*texts, padding=True, return_tensors="pt")).logits
    for line, row in zip(lines, logits.softmax(1).tolist(), strict=True):
        assert line["probabilities"] == pytest.approx({"neg": row[0], "pos": row[1]}, abs=1e-5)
        assert line["label"] == max(line["probabilities"], key=line["probabilities"].get)


def test_exported_encoder_masks_padding(tmp_path: Path) -> None:
    config, cache = config_of(tmp_path, data={"text_pair": None}), tmp_path / "cache"
    run_trial(tmp_path / "t", "classifier", config, cache=cache)
    trained, trainable = newest_checkpoint(tmp_path / "t").folder, resolve("classifier")
    given = ClassifierConfig.model_validate(config)
    source = ModelSource(
        trained, lambda: trainable.exportable(given, trained, cache), lambda folder: None
    )
    TorchExport().write(source, tmp_path)
    program = torch.export.load(tmp_path / "model.pt2").module()
    ids = torch.tensor([[2, 5, 11, 3], [2, 6, 3, 0]])  # [PAD] is 0
    alone = torch.cat([program(ids[:1]), program(ids[1:, :3])])
    torch.testing.assert_close(program(ids), alone)
    torch.testing.assert_close(source.exportable.module(ids), alone)


def test_names_and_order_of_a_pretrained_classifier_stay(tmp_path: Path) -> None:
    names = {"id2label": {0: "pos", 1: "neg"}, "label2id": {"pos": 0, "neg": 1}}
    config = config_of(tmp_path)
    bert(tmp_path / "bert", **names)
    task: Any = open_task(ClassifierConfig.model_validate(config), tmp_path / "cache")
    assert task.dataset.meta["labels"] == ["pos", "neg"]
    assert task.new_model().config.id2label == {0: "pos", 1: "neg"}
    first = AutoModelForSequenceClassification.from_pretrained(tmp_path / "bert")
    torch.testing.assert_close(task.new_model().classifier.weight, first.classifier.weight)


def test_numbers_of_labels_are_ordered_by_value(tmp_path: Path) -> None:
    rows = [{**row, "y": i % 11} for i, row in enumerate(rows_of(300))]
    config = config_of(tmp_path, data={"paths": write(tmp_path / "ids.jsonl", rows)})
    task: Any = open_task(ClassifierConfig.model_validate(config), tmp_path / "cache")
    assert task.dataset.meta["labels"] == [str(n) for n in range(11)]


def test_label_that_the_train_split_lacks_is_refused(tmp_path: Path) -> None:
    for split in Split:
        rows = rows_of(12) + (
            [{"a": "x", "b": "y", "y": "odd"}] if split is Split.SELECTION else []
        )
        write(tmp_path / f"{split}.jsonl", rows)
    paths = [str(tmp_path / f"{split}.jsonl") for split in Split]
    data = {"paths": paths, "splits": "file_names"}
    config = ClassifierConfig.model_validate(config_of(tmp_path, data=data))
    with pytest.raises(UserError, match=r"selection.jsonl:13.*'odd'"):
        open_task(config, tmp_path / "cache")


@pytest.mark.parametrize(
    ("row", "task", "named"),
    [
        ({"a": "x", "b": "y", "y": None}, "labels", "None"),
        ({"a": "x", "b": "y", "y": ["p", "q"]}, "labels", "['p', 'q']"),
        ({"a": "x", "b": "y", "y": "high"}, "regression", "high"),
        ({"a": " ", "b": "y", "y": "pos"}, "labels", "'a'"),
        ({"a": "x", "y": "pos"}, "labels", "no 'b'"),
    ],
)
def test_bad_row_is_named_at_plan(
    tmp_path: Path, row: dict[str, Any], task: str, named: str
) -> None:
    data = {"paths": write(tmp_path / "bad.jsonl", [row])}
    config = ClassifierConfig.model_validate(config_of(tmp_path, task=task, data=data))
    ((_, problem),) = config.missing_files()
    assert "bad.jsonl:1" in problem
    assert named in problem


@pytest.mark.parametrize(
    "changes",
    [
        {"task": "reward", "data": {"source": "arithmetic", "label": "y"}},
        {"data": {"source": "arithmetic"}},
        {"task": "regression", "class_weights": "balanced"},
        {"center_rewards_coefficient": 0.1},
        {"class_weights": {"pos": 0}},
        {"experts": {"count": 2}},
    ],
)
def test_settings_without_effect_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ClassifierConfig.model_validate({**EXAMPLES["classifier"].config, **changes})


def test_unknown_name_in_class_weights_is_refused(tmp_path: Path) -> None:
    config = ClassifierConfig.model_validate(config_of(tmp_path, class_weights={"poss": 2}))
    with pytest.raises(UserError, match=r"'poss'.*'pos'"):
        open_task(config, tmp_path / "cache")


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_adapter_is_that_of_peft_and_has_the_last_layer(tmp_path: Path) -> None:
    from peft import AutoPeftModelForSequenceClassification

    config, cache = config_of(tmp_path, lora={"rank": 4, "alpha": 16}), tmp_path / "cache"
    config |= {"learning_rate": 1e-2}
    curve = run_trial(tmp_path / "t", "classifier", config, cache=cache).curve
    checkpoint, trainable = newest_checkpoint(tmp_path / "t").folder, resolve("classifier")
    given, out = ClassifierConfig.model_validate(config), tmp_path / "out"
    assert trainable.evaluate(given, checkpoint, Split.SELECTION, cache) == {
        name: curve[4][name] for name in ("accuracy", "f1", "auc", "eval_loss")
    }
    out.mkdir()
    trainable.export_hf(given, checkpoint, out, cache)
    merged: Any = AutoModelForSequenceClassification.from_pretrained(out)
    by_peft: Any = AutoPeftModelForSequenceClassification.from_pretrained(checkpoint)
    ids, mask, types, _, _ = open_task(given, cache).batch(np.arange(4), CPU)
    inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    torch.testing.assert_close(merged(**inputs).logits, by_peft(**inputs).logits)
    first: Any = AutoModelForSequenceClassification.from_pretrained(tmp_path / "bert")
    assert not torch.equal(merged.classifier.weight, first.classifier.weight)
    run_trial(
        tmp_path / "cut",
        "classifier",
        config,
        cache=cache,
        channel=RecordingChannel({2: Answer.STOP}),
    )
    rest = run_trial(tmp_path / "cut", "classifier", config, cache=cache, attempt=2).curve
    assert rest == {4: curve[4]}


def test_score_of_a_row_is_that_of_its_conversation(tmp_path: Path) -> None:
    config, cache = EXAMPLES["classifier, reward"].config, tmp_path / "cache"
    run_trial(tmp_path / "t", "classifier", config, cache=cache)
    weights, trainable = newest_checkpoint(tmp_path / "t").folder, resolve("classifier")
    given = ClassifierConfig.model_validate(config)
    every = open_task(given, cache).dataset.questions(Split.SELECTION)[::2]  # type: ignore[attr-defined]
    rows = [{"question": q["question"], "chosen": q["answer"]} for q in every]
    predict = trainable.exportable(given, weights, cache).predict
    assert predict is not None
    lines = list(predict(Path(write(tmp_path / "rows.jsonl", rows))))
    each = trainable.examples(given, weights, Split.SELECTION, cache)["chosen_reward"]
    assert [line["score"] for line in lines] == pytest.approx(each, abs=1e-5)
