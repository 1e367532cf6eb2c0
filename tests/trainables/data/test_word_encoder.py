"""Tokens that are found word by word are those of `tokenizers`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from tests.trainables.data.conversations.trl_tokens import (
    ENDS,
    MARKS,
    TALKS,
    TEMPLATES,
    UNMARKED,
)
from trainables.data.conversations.chat import Chat, Rendered, encode
from trainables.data.conversations.rows import Conversation
from trainables.data.tokenizer import Encoder
from trainables.data.word_encoder import WordEncoder

SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
OTHER = r"[^\r\n\p{L}\p{N}]?"
PATTERNS = {
    "gpt2": None,
    "llama3": rf"{SHORT}|{OTHER}\p{{L}}+|\p{{N}}{{1,3}}{TAIL}",
    "qwen3": rf"{SHORT}|{OTHER}\p{{L}}+|\p{{N}}{TAIL}",
    "gpt_oss": rf"{OTHER}{UPPER}*{LOWER}+{SHORT}?|{OTHER}{UPPER}+{LOWER}*{SHORT}?|\p{{N}}{{1,3}}"
    + TAIL.replace(r"[\r\n]*", r"[\r\n/]*"),
}
TEXTS = [str(m["content"]) for row in TALKS.values() for m in row["messages"]]
PIECES = st.one_of(
    st.sampled_from([*MARKS.split(), *ENDS.split(), "<|im_", "<tool>", "</s", "<|im_start|>\n"]),
    st.sampled_from(
        ["'s", "'LL", "'\u017f", " a", "And", " Ω", "é", "e\u0301", "中文", "👩‍👩‍👧", "\u0301", "Ⅷ"]
    ),
    st.sampled_from(
        [" ", "  ", "\n", "\r\n", "\t", "\x0b\x1c", "\xa0", "\u2028", "\x85", "\u0378"]
    ),
    st.text(max_size=4),
    st.text("ab1 .\n", max_size=6),
)


class LibraryEncoder(Encoder):
    """Leaves all texts to `tokenizers`."""

    words = None


def byte_level(kind: str) -> Tokenizer:
    """A byte-level BPE in the manner of a public one."""
    pattern, tokenizer = PATTERNS[kind], Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    whole: Any = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern:
        split = pre_tokenizers.Split(Regex(pattern), "isolated")
        whole = pre_tokenizers.Sequence([split, whole])
    tokenizer.pre_tokenizer = whole
    if kind == "qwen3":
        tokenizer.normalizer = normalizers.NFC()
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, special_tokens=["</s>"], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    special = [*MARKS.split(), *ENDS.split()]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False)])
    return tokenizer


TOKENIZERS = {kind: byte_level(kind) for kind in PATTERNS}


def tokens(encoder: Encoder, *rendered: Rendered) -> list[tuple[list[int], list[bool], list[int]]]:
    """Ids, which of them count, and those of the prompt."""
    talk = Conversation("", (), "")
    found = [t for _, t in encode([(talk, r) for r in rendered], encoder, 1 << 20)]  # type: ignore[misc]
    return [(t.ids.tolist(), t.counted.tolist(), t.prompt) for t in found]


def assert_same(tokenizer: Tokenizer, *rendered: Rendered) -> None:
    assert tokens(Encoder(tokenizer, 1), *rendered) == tokens(
        LibraryEncoder(tokenizer, 1), *rendered
    )


@st.composite
def marked_texts(draw: st.DrawFn) -> Rendered:
    """A text with spans, most of which end where a piece ends."""
    pieces = draw(st.lists(PIECES, min_size=1, max_size=12))
    text, ends = "".join(pieces), [0]
    for piece in pieces:
        ends.append(ends[-1] + len(piece))
    place = st.sampled_from(ends) | st.integers(0, len(text))
    at = sorted(
        draw(st.lists(place, max_size=3).map(lambda some: some + some[:1] * (len(some) % 2)))
    )
    return Rendered(
        text, list(zip(at[::2], at[1::2], strict=True)), text[: at[0] if at else 0], None
    )


@pytest.mark.parametrize("kind", PATTERNS)
@given(st.lists(marked_texts(), min_size=1, max_size=4))
@settings(max_examples=40)
@example([Rendered(" <s>a", [(0, 5)], "", None)])
@example([Rendered("a  </s>  b ", [(1, 3), (7, 11)], "", None)])
def test_tokens_and_spans_are_those_of_the_library(kind: str, texts: list[Rendered]) -> None:
    assert_same(TOKENIZERS[kind], *texts)


@pytest.mark.parametrize("kind", PATTERNS)
@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_conversations_have_the_same_tokens(kind: str, name: str) -> None:
    for source in (TEMPLATES[name], UNMARKED[name]):
        fast: Any = PreTrainedTokenizerFast
        tokenizer = fast(
            tokenizer_object=TOKENIZERS[kind],
            bos_token="<s>",
            eos_token="</s>",
            chat_template=source,
        )
        chat = Chat(tokenizer)
        found = [chat.render(row["messages"], row.get("tools")) for row in TALKS.values()]
        assert_same(TOKENIZERS[kind], *(r for r in found if not isinstance(r, str)))


@pytest.mark.parametrize("kind", PATTERNS)
def test_texts_are_encoded_without_the_library(kind: str) -> None:
    words = WordEncoder.of(TOKENIZERS[kind])
    assert words
    texts = ["<|im_start|>user\nIsn't it?<|im_end|>\n", "\u201cÉtude\u201d 👩‍👩‍👧 中文 3.14"]
    assert None not in words.encode(texts, [[(12, 16)], []])


def changed(**given: Any) -> Tokenizer:
    tokenizer = Tokenizer.from_str(TOKENIZERS["gpt2"].to_str())
    for name, value in given.items():
        setattr(tokenizer, name, value)
    return tokenizer


OTHERS = {
    "prefix": changed(pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "digits": changed(
        pre_tokenizer=pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    ),
    "anchors": changed(
        pre_tokenizer=pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"^a|.+"), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    ),
    "lower": changed(normalizer=normalizers.Lowercase()),
    "special": changed(encode_special_tokens=True),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_tokenizers_are_left_to_the_library(name: str) -> None:
    assert WordEncoder.of(OTHERS[name]) is None


def test_added_tokens_that_take_spaces_are_left_to_the_library() -> None:
    tokenizer = changed()
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True)])
    assert WordEncoder.of(tokenizer) is None
