"""Rows in the forms that people have: recognised, the same conversations, and trl's tokens."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from search_spaces.errors import UserError
from tests.trainables.data.conversations.test_templates import TRL_ROWS, tokens
from tests.trainables.data.conversations.trl_tokens import ROWS, TEMPLATES, TURNS, byte_tokenizer
from tests.trainables.examples import EXAMPLES
from trainables.base import Split
from trainables.data.bad_rows import BadRow
from trainables.data.conversations.config import RowsConfig
from trainables.data.conversations.dataset import Conversations, prepare
from trainables.data.conversations.rows import Conversation
from trainables.dpo.config import DPOConfig
from trainables.grpo.config import GRPOConfig
from trainables.sft.config import RowsTrainedConfig, SFTConfig

CONFIGS: dict[str, type[RowsTrainedConfig]] = {
    "sft": SFTConfig,
    "dpo": DPOConfig,
    "grpo": GRPOConfig,
}
ASKED, GOOD, _, BAD = (m["content"] for m in TURNS)
USER, BEST, _, WORST = TURNS
MESSAGES = ROWS["messages"]["messages"]
SHAREGPT = [
    {"from": {"user": "human", "assistant": "gpt"}.get(m["role"], m["role"]), "value": m["content"]}
    for m in MESSAGES
]
PARTS = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in MESSAGES]
THANKS = {"role": "user", "content": "Thanks."}
COUNT = 5


@dataclass(frozen=True)
class Case:
    """A row, what its form is called, the row of trl that means the same, and who reads it."""

    row: dict[str, Any]
    name: str
    like: str = "completion"
    trainables: tuple[str, ...] = ("sft", "grpo")


OPENAI, SHARE = "OpenAI messages", "ShareGPT conversations"
CASES = {
    "openai": Case({"messages": MESSAGES}, OPENAI, "messages"),
    "openai, parts": Case({"messages": PARTS}, OPENAI, "messages"),
    "openai, a user's end": Case({"messages": [*MESSAGES, THANKS]}, OPENAI, "messages"),
    "sharegpt": Case({"conversations": SHAREGPT, "id": "7"}, SHARE, "messages"),
    "sharegpt, system apart": Case(
        {"system": "Be brief.", "conversations": SHAREGPT[1:]}, SHARE, "messages"
    ),
    "alpaca": Case({"instruction": ASKED, "input": "", "output": GOOD}, "Alpaca instructions"),
    "prompt": Case({"prompt": ASKED, "completion": GOOD}, "prompts and completions"),
    "trl": Case(ROWS["completion"], "conversational prompts and completions"),
    "question": Case(
        {"question": ASKED, "answer": GOOD}, "questions and answers (question, answer)"
    ),
    "dolly": Case(
        {"instruction": ASKED, "response": GOOD}, "questions and answers (instruction, response)"
    ),
    "pair": Case(
        {"prompt": ASKED, "chosen": GOOD, "rejected": BAD}, "preference pairs", "pair", ("dpo",)
    ),
    "trl, pair": Case(ROWS["pair"], "conversational preference pairs", "pair", ("dpo",)),
    "ultrafeedback": Case(
        {"prompt": ASKED, "chosen": [USER, BEST], "rejected": [USER, WORST]},
        "conversational preference pairs",
        "pair",
        ("dpo",),
    ),
    "trl, implicit": Case(
        {"chosen": [USER, BEST], "rejected": [USER, WORST]},
        "conversational preference pairs",
        "pair",
        ("dpo",),
    ),
}
FILES = {
    "jsonl": lambda rows, file: file.write_text("".join(json.dumps(r) + "\n" for r in rows)),
    "parquet": lambda rows, file: pq.write_table(pa.Table.from_pylist(rows), file),
}


def config(trainable: str, *paths: Path, **data: Any) -> RowsTrainedConfig:
    """A configuration with the rows of files."""
    given = {"source": "files", "paths": [str(path) for path in paths], **data}
    shape = {"hidden_size": 16, "num_layers": 1, "vocab_size": 300, "packing": "none"}
    more = {} if trainable == "sft" else {"sft": shape}
    settings = EXAMPLES["sft"].config if trainable == "sft" else more
    return CONFIGS[trainable].model_validate({**settings, "data": given})


def rows_of(data: RowsConfig) -> list[Conversation]:
    """The conversations of files."""
    found = list(data.recognised(data.files())[0].rows(data.files()))
    assert not [row.problem for row in found if isinstance(row, BadRow)]
    return [row for row in found if isinstance(row, Conversation)]


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    ("name", "trainable"), [(name, t) for name, case in CASES.items() for t in case.trainables]
)
def test_forms_are_recognised_and_have_trls_tokens(
    name: str, trainable: str, kind: str, tmp_path: Path
) -> None:
    case, file = CASES[name], tmp_path / f"rows.{kind}"
    FILES[kind]([case.row] * COUNT, file)  # type: ignore[no-untyped-call]
    given = config(trainable, file)
    assert given.missing_files() == []
    (note,) = given.notes()
    assert note.startswith(f"data: {case.name}, {COUNT} rows")
    assert ("5 end with a turn that is no answer" in note) == ("end" in name)
    tokenizer = byte_tokenizer(TEMPLATES["chatml"])
    expected = TRL_ROWS[case.like]
    for row, (ids, counted) in zip(rows_of(given.data), expected, strict=False):
        assert tokens(tokenizer, row) == (ids, counted)
    assert len(rows_of(given.data)) == COUNT * len(expected)


REFUSED = {
    "several": ({"prompt": "a", "question": "a", "answer": "b"}, "data.question: prompt with"),
    "both": ({"messages": MESSAGES, "prompt": "a", "response": "b"}, "or data.messages: messages"),
    "similar": ({"promt": "a", "respons": "b"}, "data.question: promt with data.answer: respons"),
    "other": ({"dialog": MESSAGES}, "data.messages: dialog"),
    "pairs": ({"prompt": "a", "chosen": "b", "rejected": "c"}, "dpo"),
    "texts": ({"text": "a"}, "causal_lm"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_columns_are_refused_with_the_nearest_form(name: str, tmp_path: Path) -> None:
    row, hint = REFUSED[name]
    FILES["jsonl"]([row], tmp_path / "a.jsonl")  # type: ignore[no-untyped-call]
    ((_, problem),) = config("sft", tmp_path / "a.jsonl").missing_files()
    assert problem.startswith(f"{tmp_path / 'a.jsonl'}: the columns {', '.join(row)} ")
    assert hint in problem
    assert "\n" not in problem


def test_one_named_column_is_enough(tmp_path: Path) -> None:
    row = {"prompt": "a", "answer": "b", "solution": "c"}
    FILES["jsonl"]([row] * 2, tmp_path / "a.jsonl")  # type: ignore[no-untyped-call]
    found = rows_of(config("sft", tmp_path / "a.jsonl", answer="solution").data)
    assert [m["content"] for m in found[0].messages] == ["a", "c"]


def test_answers_of_weight_0_are_not_counted(tmp_path: Path) -> None:
    turns = [USER, {**BEST, "weight": 0}, USER, {**WORST, "weight": 1}]
    FILES["jsonl"]([{"messages": turns}], tmp_path / "a.jsonl")  # type: ignore[no-untyped-call]
    (row,) = rows_of(config("sft", tmp_path / "a.jsonl").data)
    tokenizer = byte_tokenizer(TEMPLATES["chatml"])
    ids, counted = tokens(tokenizer, row)
    said = tokenizer.decode([i for i, c in zip(ids, counted, strict=True) if c == "1"])
    assert said == f"{BAD}<|im_end|>\n"


def long_rows(folder: Path, **data: Any) -> SFTConfig:
    """Sixty short rows, three whose answers are too long, and one whose question is."""
    rows = [{"question": f"What is {i}?", "answer": f"{i}."} for i in range(60)]
    rows += [{"question": f"And {i}?", "answer": f"{i} " * 400} for i in range(3)]
    rows += [{"question": "How " * 900, "answer": "So."}]
    FILES["jsonl"](rows, folder / "a.jsonl")  # type: ignore[no-untyped-call]
    given = config("sft", folder / "a.jsonl", **data).model_dump(exclude_unset=True)
    return SFTConfig.model_validate({**given, "packing": "none", "sequence_length": 64})


def build(given: SFTConfig, folder: Path) -> Conversations:
    return prepare(given, given.data, folder / "cache")


def test_long_rows_are_cut_at_the_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    built = build(long_rows(tmp_path, on_long="truncate"), tmp_path)
    assert sum(len(built.sequences(split)) for split in Split) == 63
    assert max(built.lengths(split).max() for split in Split) == 65
    assert sum(int(line.split()[1]) for line in caplog.messages if "are cut" in line) == 3
    ((problem),) = built.meta["skipped"]
    assert "no answer is in its first 65 tokens" in problem


def test_long_rows_are_skipped_or_refused(tmp_path: Path) -> None:
    built = build(long_rows(tmp_path, on_long="skip"), tmp_path)
    assert len(built.meta["skipped"]) == 4
    with pytest.raises(UserError, match=r"a\.jsonl:6"):
        build(long_rows(tmp_path, on_long="refuse", on_bad_data="skip"), tmp_path)
    plain = long_rows(tmp_path, on_bad_data="skip")
    assert len(build(plain, tmp_path).meta["skipped"]) == 4
    assert GRPOConfig.problems({"data": {"on_long": "truncate"}})
