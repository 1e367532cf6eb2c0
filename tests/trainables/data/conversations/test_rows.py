"""Bad data of `sft`: one line before a worker starts, or skipped and counted."""

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from search_spaces.errors import UserError
from tests.trainables.causal_lm.pretrained import write_base
from tests.trainables.examples import EXAMPLES
from trainables.base import Split
from trainables.data.conversations import dataset as data
from trainables.data.conversations.chat import Rendered, Tokens, encode
from trainables.data.conversations.packing import AT_ONCE, best_fit, write_sequences
from trainables.data.conversations.rows import Conversation
from trainables.data.tokenizer import Encoder, train_bpe
from trainables.sft.config import SFTConfig

GOOD = [{"question": f"What is {i}?", "answer": f"The number {i}."} for i in range(60)]


def prepare(config: SFTConfig, cache: Path) -> data.Conversations:
    return data.prepare(config, config.data, cache)


def config(file: Path, **data: Any) -> SFTConfig:
    given = {"source": "files", "paths": str(file), **data}
    return SFTConfig.model_validate({**EXAMPLES["sft"].config, "data": given})


def jsonl(folder: Path, *rows: Any) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *GOOD]))
    return file


BAD_LINES: list[tuple[Any, dict[str, str], str]] = [
    ({"question": "a", "answer": " "}, {}, "rows.jsonl:1: 'answer' is empty"),
    ({"question": "a", "answer": 3}, {}, "rows.jsonl:1: 'answer' must be text, got int"),
    ({"question": "a", "anser": "b"}, {}, "rows.jsonl:1: no 'answer' (did you mean 'anser'?)"),
    (["a"], {}, "rows.jsonl:1: not a JSON object"),
    ({"m": "hello"}, {"messages": "m"}, "rows.jsonl:1: 'm' is no list of {role, content}"),
    (
        {"m": [{"role": "user", "content": "a"}]},
        {"messages": "m"},
        "rows.jsonl:1: 'm' has no message of the assistant",
    ),
    (
        {"m": [{"role": "user", "content": [{"type": "text", "text": None}]}]},
        {"messages": "m"},
        "rows.jsonl:1: 'm[0].content' has a part without text",
    ),
]


@pytest.mark.parametrize(("row", "data", "problem"), BAD_LINES)
def test_a_bad_line_is_one_problem_of_the_plan(
    tmp_path: Path, row: Any, data: dict[str, str], problem: str
) -> None:
    ((path, found),) = config(jsonl(tmp_path, row), **data).missing_files()
    assert path == ("data",)
    assert problem in found
    assert found.endswith("on_bad_data: skip")
    assert "\n" not in found


def test_bad_lines_are_skipped_and_counted(tmp_path: Path) -> None:
    rows = [row for row, data, _ in BAD_LINES if not data]
    long = {"question": "a", "answer": "long " * 400}
    file = jsonl(tmp_path, *rows, long)
    assert config(file, on_bad_data="skip").missing_files() == []
    built = prepare(config(file, on_bad_data="skip"), tmp_path / "cache")
    assert len(built.meta["skipped"]) == len(rows) + 1
    assert sum(len(built.questions(s)) for s in (Split.SELECTION, Split.TEST)) < len(GOOD)
    with pytest.raises(UserError, match=r"rows\.jsonl:1: .* is empty; repair it"):
        prepare(config(file), tmp_path / "cache")
    with pytest.raises(UserError, match=r"rows\.jsonl:1: \d+ tokens, .* leaves room for 257"):
        prepare(config(jsonl(tmp_path, {**long, "answer": "long " * 4000})), tmp_path / "cache")


def test_the_plan_counts_the_tokens_of_a_model_in_a_folder(tmp_path: Path) -> None:
    write_base(tmp_path / "base", tmp_path / "cache")  # 16 positions
    rows = [{"question": "a?", "answer": "yes " * count} for count in (2, 40)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def problems(**data: Any) -> list[Any]:
        settings: dict[str, Any] = {"data": {"source": "files", "paths": str(file), **data}}
        settings |= {"model_name_or_path": str(tmp_path / "base"), "sequence_length": 16}
        return SFTConfig.model_validate(settings).missing_files()

    ((_, found),) = problems()
    assert re.search(
        r"rows\.jsonl:2: at least \d+ tokens, and .* 16 leaves room for 17 .*; rep", found
    )
    assert problems(on_bad_data="skip") == []


def test_answers_without_weight_are_left_out_and_greetings_are_no_questions(tmp_path: Path) -> None:
    answer = {"role": "assistant", "content": "Hello."}
    file = tmp_path / "rows.jsonl"
    talks = [[answer, {"role": "user", "content": f"q{i}"}, answer] for i in range(60)]
    unlearned = [{"role": "user", "content": "q"}, {**answer, "weight": 0}]
    lines = [json.dumps({"messages": talk}) for talk in [[], *talks, unlearned]]
    file.write_text("\n".join(lines))
    built = prepare(config(file, on_bad_data="skip"), tmp_path / "cache")
    assert [problem.split(": ")[0] for problem in built.meta["skipped"]] == [
        f"{file}:1",
        f"{file}:62",
    ]
    assert len(built.questions(Split.TEST)) > 1
    assert all(built.counted(split).any(axis=1).all() for split in Split)


def test_equal_units_stay_in_one_split(tmp_path: Path) -> None:
    rows = [{**row, "topic": f"t{i % 12}"} for i, row in enumerate(GOOD)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    built = prepare(config(file, split_by="topic"), tmp_path / "cache")
    topic = {row["question"]: row["topic"] for row in rows}
    seen = {
        s: {topic[q["question"]] for q in built.questions(s)} for s in (Split.SELECTION, Split.TEST)
    }
    assert seen[Split.SELECTION]
    assert not seen[Split.SELECTION] & seen[Split.TEST]
    held = sum(len(built.questions(s)) for s in seen)
    assert held == 5 * len(seen[Split.SELECTION] | seen[Split.TEST])


def test_best_fit_uses_every_item_once_and_little_room() -> None:
    lengths = [7, 3, 3, 5, 2, 8, 1, 1]
    bins = best_fit(lengths, 10)
    assert sorted(i for items in bins for i in items) == list(range(8))
    assert all(sum(lengths[i] for i in items) <= 10 for items in bins)
    assert len(bins) == 3


def test_sequences_are_those_of_best_fit_in_any_number(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(2, 12, 9_000)
    told = [Tokens(rng.integers(1, 99, n), rng.random(n) < 0.5, []) for n in sizes]
    encoder = train_bpe(["a"], 257)
    count = write_sequences(str(tmp_path / "train"), told, 11, encoder, packed=True)
    bins = best_fit(sizes.tolist(), 12)
    built = data.Conversations(tmp_path)
    assert count == len(bins) == len(built.sequences(Split.TRAIN)) > AT_ONCE // 12
    positions = built.positions(Split.TRAIN)
    assert positions is not None
    for row, items in enumerate(bins):
        ids = np.concatenate([told[i].ids for i in items])
        places = np.concatenate([np.arange(sizes[i]) for i in items])
        counted = np.concatenate([told[i].counted for i in items]) & (places > 0)
        room, used = 12 - len(ids), built.lengths(Split.TRAIN)[row]
        assert used == len(ids)
        assert built.sequences(Split.TRAIN)[row].tolist() == [*ids, *[encoder.end] * room]
        assert positions[row].tolist() == [*places, *range(room)][:-1]
        assert built.counted(Split.TRAIN)[row].tolist() == [*counted, *[False] * room][1:]
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "train.counted.npy",
        "train.lengths.npy",
        "train.npy",
        "train.positions.npy",
    ]


@pytest.mark.parametrize("prefix", [False, True])
def test_answers_are_the_tokens_that_touch_them(prefix: bool) -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices("ab c é漢😀\n x", k=rng.randint(2, 40))) for _ in range(300)]
    backend = train_bpe(texts, 300).tokenizer
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    for text in texts:
        begin, end = sorted(rng.sample(range(len(text) + 1), 2))
        rendered = Rendered(text, [(begin, end)], "", None)
        talk = Conversation("", (), "")
        ((_, tokens),) = encode([(talk, rendered)], Encoder(backend, 0), 999)  # type: ignore[misc]
        offsets = backend.encode(text).offsets
        expected = [e > begin and s < end for s, e in offsets]
        assert tokens.counted[: len(offsets)].tolist() == expected
