"""Token ids and counted tokens of chat templates are those of trl, with and without marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from tests.trainables.data.conversations.trl_tokens import (
    FILE,
    TALKS,
    TEMPLATES,
    UNMARKED,
    Counted,
    byte_tokenizer,
)
from trainables.data.conversations.chat import Chat, encode
from trainables.data.conversations.rows import Columns, Conversation, read_rows
from trainables.data.tokenizer import Encoder

TRL = json.loads(FILE.read_text())
TRL_ROWS = TRL.pop("rows")


def conversation(row: dict[str, Any], folder: Path) -> Conversation:
    """The conversation of a row in a file."""
    file = folder / "row.jsonl"
    file.write_text(json.dumps(row))
    (found,) = read_rows([file], Columns("question", "answer", "messages"))
    assert isinstance(found, Conversation), found
    return found


def tokens(tokenizer: Any, talk: Conversation) -> Counted:
    """The ids of a conversation, and which of them count."""
    rendered = Chat(tokenizer).render(talk.messages, talk.tools)
    assert not isinstance(rendered, str), rendered
    encoder = Encoder(tokenizer.backend_tokenizer, tokenizer.eos_token_id)
    ((_, found),) = encode([(talk, rendered)], encoder, 10_000)  # type: ignore[misc]
    return found.ids.tolist(), "".join("01"[int(counts)] for counts in found.counted)


@pytest.mark.parametrize("marks", ["marked", "unmarked"])
@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_tokens_are_those_of_trl(name: str, marks: str, tmp_path: Path) -> None:
    source = TEMPLATES if marks == "marked" else UNMARKED
    for talk, (ids, counted) in TRL[name].items():
        tokenizer = byte_tokenizer(source[name])
        found, mask = tokens(tokenizer, conversation(TALKS[talk], tmp_path))
        assert tokenizer.decode(found) == tokenizer.decode(ids), talk
        said, wanted = (
            [i for i, c in zip(found, flags, strict=True) if c == "1"] for flags in (mask, counted)
        )
        assert tokenizer.decode(said) == tokenizer.decode(wanted), talk
        assert [found, mask] == [ids, counted], talk


@pytest.mark.parametrize("talk", ["system", "tools", "reasoning"])
def test_what_a_template_leaves_out_is_refused(talk: str, tmp_path: Path) -> None:
    found = conversation(TALKS[talk], tmp_path)
    problem = Chat(
        byte_tokenizer(TEMPLATES["mistral_v3" if talk == "system" else "chatml"])
    ).render(found.messages, found.tools)
    assert isinstance(problem, str)
    assert {"system": "messages[0]", "tools": "tools", "reasoning": "messages[1]."}[talk] in problem


def sentence_pieces(template: str, prepend: str) -> PreTrainedTokenizerFast:
    """A tokenizer in the manner of sentencepiece, which puts a space before a text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    words = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=True)
    tokenizer.pre_tokenizer = words
    said = [str(m["content"]) for row in TALKS.values() for m in row["messages"]]
    special = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256))]
    tokenizer.train_from_iterator(
        said,
        trainers.BpeTrainer(vocab_size=500, special_tokens=special, show_progress=False),
    )
    if prepend == "normalizer":  # as in Llama 2
        whole = json.loads(tokenizer.to_str()) | {"pre_tokenizer": None}
        whole["added_tokens"] = whole["added_tokens"][:3]
        tokenizer = Tokenizer.from_str(json.dumps(whole))
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend, split=False)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([AddedToken("<end_of_turn>", normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", chat_template=template
    )


@pytest.mark.parametrize("prepend", ["normalizer", "first", "always", "never"])
@pytest.mark.parametrize("name", ["llama2", "zephyr", "vicuna", "gemma"])
def test_sentence_pieces_are_those_of_the_whole_text(
    name: str, prepend: str, tmp_path: Path
) -> None:
    """No space is added within it: an answer alone would begin with one.

    A line break behind an end may be two tokens, `▁` and itself; transformers counts the first.
    """
    for talk in ("turns", "repeated", "system"):
        row = TALKS[talk]
        marked = sentence_pieces(TEMPLATES[name], prepend).apply_chat_template(
            row["messages"], return_dict=True, return_assistant_tokens_mask=True
        )
        found = tokens(sentence_pieces(UNMARKED[name], prepend), conversation(row, tmp_path))
        ids, counted = marked["input_ids"], "".join(map(str, marked["assistant_masks"]))
        if prepend in ("normalizer", "always") and name in ("zephyr", "gemma"):
            counted = counted.replace("10", "11")[: len(ids) - 1] + "1"
        assert found == (ids, counted), talk
