"""Rows of chats as people have them: rendered as at inference, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers
from transformers import (
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from search_spaces.errors import UserError
from tests.trainables.examples import EXAMPLES
from trainables.base import Split
from trainables.data.bad_rows import BadRow
from trainables.data.conversations.chat import Chat, Rendered, encode
from trainables.data.conversations.dataset import Conversations, prepare
from trainables.data.conversations.rows import Columns, Conversation, read_rows
from trainables.data.tokenizer import Encoder, train_bpe
from trainables.dpo.config import DPOConfig
from trainables.generation.text_ends import declare_ends, text_ends
from trainables.grpo.answers import noise, sample

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
MARKED = CHATML.replace(
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}",
    "{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}{% generation %}"
    "{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}{% else %}"
    "{{ m.content + '<|im_end|>\\n' }}{% endif %}",
)
THINKING = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{% if m.role == 'assistant' %}"
    "{{ '<think>\\n\\n</think>\\n\\n' if loop.last }}{% endif %}"
    "{{ m.content.split('</think>')[-1].strip() + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
CLOSED = CHATML.replace("{% endif %}", "{% else %}{{ eos_token }}{% endif %}")
OTHER_END = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + ':' + m.content }}"
    "{{ '<|im_end|>' if loop.last else '<|stop|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}"
)
CALLS = CHATML.replace(
    "m.content +",
    "m.content + (m.tool_calls | map(attribute='function') | list | tojson if m.tool_calls else '')"
    " +",
)
SMALL = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|stop|>"]


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any, **others: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **others}


TWO = [user("q1"), assistant("Yes."), user("q2"), assistant("No.")]
WEATHER = [{"type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}]


def tokenizer(template: str) -> Any:
    backend = train_bpe(["yes no system user assistant"], 300).tokenizer
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    fast: Any = PreTrainedTokenizerFast
    return fast(tokenizer_object=backend, eos_token=SPECIAL[0], chat_template=template)


def answers(template: str, messages: list[dict[str, Any]], **others: Any) -> list[str] | str:
    found = Chat(tokenizer(template)).render(messages, **others)
    return found if isinstance(found, str) else [found.text[a:b] for a, b in found.answers]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (CHATML, ["Yes.<|im_end|>\n", "No.<|im_end|>\n"]),
        (MARKED, ["Yes.<|im_end|>", "No.<|im_end|>"]),
        (THINKING, ["Yes.<|im_end|>\n", "<think>\n\n</think>\n\nNo.<|im_end|>\n"]),
        (CLOSED, ["Yes.<|im_end|>\n", "No.<|im_end|>\n<|endoftext|>"]),
        (OTHER_END, [":Yes.<|stop|>", ":No.<|im_end|>"]),
    ],
)
def test_answers_are_what_the_model_writes(template: str, expected: list[str]) -> None:
    assert answers(template, TWO) == expected
    assert answers(template, [*TWO, user("thanks")])[0] == expected[0]
    first, second = TWO[1], {**TWO[3], "weight": 0}
    (only,) = answers(template, [TWO[0], first, TWO[2], second])
    assert only == expected[0]


def test_an_earlier_thought_is_left_out_as_at_inference() -> None:
    talk = [user("q1"), assistant("<think>hm</think>\n\nYes."), *TWO[2:]]
    assert answers(THINKING, talk) == answers(THINKING, TWO)


@pytest.mark.parametrize("arguments", ['{"city": "Bonn"}', {"city": "Bonn"}])
def test_calls_of_tools_are_answers(arguments: Any) -> None:
    call = [{"type": "function", "function": {"name": "weather", "arguments": arguments}}]
    talk = [user("q"), assistant(None, tool_calls=call), {"role": "tool", "content": "21"}]
    first, second = answers(CALLS, [*talk, assistant("It is 21.")])
    assert first == '[{"name": "weather", "arguments": {"city": "Bonn"}}]<|im_end|>\n'
    assert second == "It is 21.<|im_end|>\n"


REFUSED: list[tuple[list[dict[str, Any]], dict[str, Any], str]] = [
    ([user("q"), assistant("", tool_calls=WEATHER)], {}, "messages[1].tool_calls"),
    ([user("q"), assistant("a", reasoning="r")], {}, "messages[1].reasoning"),
    ([user("q"), assistant("a", train=False)], {}, "messages[1].train"),
    ([{"role": "critic", "content": "q"}, assistant("a")], {}, "'critic'"),
    ([user("q"), assistant("a")], {"tools": [{"name": "weather"}]}, "'tools'"),
]


@pytest.mark.parametrize(("messages", "others", "named"), REFUSED)
def test_what_a_template_leaves_out_is_named(
    messages: list[dict[str, Any]], others: dict[str, Any], named: str
) -> None:
    assert named in answers(CHATML, messages, **others)


def test_an_error_of_a_template_is_one_line() -> None:
    found = answers("{{ raise_exception('System role not supported') }}", TWO)
    assert isinstance(found, str)
    assert "System role not supported" in found


def test_a_whole_text_is_encoded_at_once() -> None:
    """A tokenizer of sentencepiece puts a space before each text."""
    vocabulary = {t: i for i, t in enumerate(["<unk>", "</s>", "▁", "q", ":", "y", "▁y"])}
    backend = Tokenizer(models.BPE(vocabulary, [("▁", "y")], unk_token="<unk>"))
    backend.normalizer = normalizers.Prepend("▁")
    backend.add_special_tokens([AddedToken("</s>", special=True)])
    template = "{% for m in messages %}{{ m.content }}{{ eos_token if loop.last }}{% endfor %}"
    fast: Any = PreTrainedTokenizerFast
    wrapped = fast(tokenizer_object=backend, eos_token="</s>", chat_template=template)
    talk = Conversation("f:1", (user("q:"), assistant("y")), "q:")
    rendered = Chat(wrapped).render(talk.messages)
    assert isinstance(rendered, Rendered)
    ((_, tokens),) = encode([(talk, rendered)], Encoder(backend, 1), 99)  # type: ignore[misc]
    assert backend.decode(list(tokens.ids), skip_special_tokens=False).split() == [
        "▁",
        "q",
        ":",
        "y",
        "</s>",
    ]
    assert tokens.counted.tolist() == [False, False, False, True, True]


@pytest.mark.parametrize(
    ("template", "closing"),
    [(CHATML, ["<|im_end|>"]), ("{% for m in messages %}{{ m.content }}{% endfor %}", [])],
)
def test_the_end_of_a_text_closes_only_what_nothing_else_closes(
    template: str, closing: list[str]
) -> None:
    wrapped = tokenizer(template)
    talk = Conversation("f:1", tuple(TWO), "q1")
    rendered = Chat(wrapped).render(talk.messages)
    if isinstance(rendered, str):
        rendered = Chat(wrapped).render(TWO[2:])
    assert isinstance(rendered, Rendered)
    end = wrapped.eos_token_id
    ((_, tokens),) = encode([(talk, rendered)], Encoder(wrapped.backend_tokenizer, end), 999)  # type: ignore[misc]
    assert (end in tokens.ids) == (not closing)
    assert end not in tokens.ids[:-1]


@pytest.mark.parametrize("declared", [None, 5, [5, 7]])
def test_a_model_ends_where_its_configuration_or_template_says(declared: Any) -> None:
    wrapped = tokenizer(CHATML)
    own = {wrapped.eos_token_id, wrapped.convert_tokens_to_ids("<|im_end|>")}
    model: Any = LlamaForCausalLM(LlamaConfig(vocab_size=300, **SMALL))
    model.generation_config = GenerationConfig(eos_token_id=declared)
    before = declared if isinstance(declared, list) else [declared] * (declared is not None)
    assert text_ends(model, wrapped) == own | set(before)
    declare_ends(model, wrapped)
    assert model.generation_config.eos_token_id == [*before, *sorted(own)]


def test_completions_stop_at_every_end() -> None:
    model = LlamaForCausalLM(LlamaConfig(vocab_size=8, **SMALL)).eval()
    numbers = noise(0, 1, range(40), 1, 12)
    found = sample(model, [[1]] * 40, frozenset([2, 3]), 1.0, numbers)
    assert all(not {2, 3} & set(text) for text in found.texts())
    last = {
        int(ids[n - 1])
        for ids, n, end in zip(found.ids, found.lengths, found.ended, strict=True)
        if end
    }
    assert last == {2, 3}


ROWS: list[tuple[dict[str, Any], Columns, list[tuple[str, Any]]]] = [
    (
        {"c": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
        Columns("question", "answer", "c"),
        [("user", "q"), ("assistant", "a")],
    ),
    (
        {"c": [user([{"type": "text", "text": "q"}]), assistant("a"), user("thanks")]},
        Columns("question", "answer", "c"),
        [("user", "q"), ("assistant", "a")],
    ),
    (
        {"prompt": [user("q")], "completion": [assistant("a")]},
        Columns("prompt", "completion"),
        [("user", "q"), ("assistant", "a")],
    ),
    (
        {"instruction": "Add", "input": "3 and 4", "output": "7"},
        Columns("instruction", "output"),
        [("user", "Add\n\n3 and 4"), ("assistant", "7")],
    ),
    (
        {"system_prompt": "Be brief.", "question": "q", "answer": "a"},
        Columns("question", "answer"),
        [("system", "Be brief."), ("user", "q"), ("assistant", "a")],
    ),
]


@pytest.mark.parametrize(("row", "columns", "expected"), ROWS)
def test_forms_of_rows(
    tmp_path: Path, row: dict[str, Any], columns: Columns, expected: list[tuple[str, Any]]
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    (found,) = read_rows([tmp_path / "a.jsonl"], columns)
    assert isinstance(found, Conversation)
    assert [(m["role"], m["content"]) for m in found.messages] == expected


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"question": "q", "answer": "a", "context": "c"}, "'context'"),
        ({"question": "q", "answer": "a", "history": [["x", "y"]]}, "'history'"),
        ({"question": [user([{"type": "image_url"}])], "answer": "a"}, "image_url"),
        ({"question": "q", "answer": [assistant("a", weight=0.5)]}, "weight"),
    ],
)
def test_parts_of_rows_that_are_not_read_are_named(
    tmp_path: Path, row: dict[str, Any], named: str
) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    (found,) = read_rows([tmp_path / "a.jsonl"], Columns("question", "answer"))
    assert isinstance(found, BadRow)
    assert named in found.problem


def pairs(folder: Path, rows: list[dict[str, Any]], **data: Any) -> Conversations:
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = {"source": "files", "paths": str(file), **data}
    config = DPOConfig.model_validate({**EXAMPLES["dpo"].config, "data": given})
    return prepare(config.model_copy(update={"sft": None}), config.data, folder / "cache")


@pytest.mark.parametrize("whole", [True, False])
def test_pairs_of_messages(tmp_path: Path, whole: bool) -> None:
    def row(i: int) -> dict[str, Any]:
        talk = [user(f"q{i}"), assistant("ok"), user("go on")]
        first = talk if whole else []
        chosen, rejected = ([*first, assistant(text)] for text in ("yes", "no"))
        given = {} if whole else {"prompt": talk}
        return {**given, "chosen": chosen, "rejected": rejected}

    data = pairs(tmp_path, [row(i) for i in range(60)])
    asked = data.questions(Split.SELECTION)
    assert [q["answer"] for q in asked[:2]] == ["yes", "no"]
    counted = [int(row.sum()) for row in data.counted(Split.SELECTION)[:2]]
    assert max(counted) <= len("yes") + 1


def test_a_pair_is_skipped_as_a_whole(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}", "chosen": "a", "rejected": "b"} for i in range(60)]
    rows[3]["chosen"] = "long " * 400
    with pytest.raises(UserError, match="on_bad_data: skip"):
        pairs(tmp_path, rows)
    data = pairs(tmp_path, rows, on_bad_data="skip")
    assert len(data.meta["skipped"]) == 1
    assert sum(data.meta["sequences"].values()) == 2 * 59
