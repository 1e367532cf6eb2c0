"""A GGUF file has the tokens, ends and chat template of its model, or is refused by name."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
import torch
from gguf import GGUFReader
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GenerationConfig,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from results.export.exportable import ModelSource
from results.export.formats.gguf import LLAMA_CPP, Gguf, GgufQ4
from results.export.verify import verify_export
from search_spaces.errors import UserError
from trainables.causal_lm.export import TEXT
from trainables.registry import resolve

pytestmark = pytest.mark.slow

BYTES = ByteLevel(add_prefix_space=False, use_regex=False)
REGEX = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT2 = ByteLevel(add_prefix_space=False)
SMOLLM = Sequence([Digits(individual_digits=True), GPT2])
QWEN2 = Sequence([Split(Regex(REGEX), "isolated"), BYTES])
LLAMA3 = Sequence([Split(Regex(REGEX.replace(r"\p{N}|", r"\p{N}{1,3}|")), "isolated"), BYTES])
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] | trim }}<end>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def tokenizer_of(pre: PreTokenizer, whole_words: bool = False) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE(ignore_merges=whole_words))
    backend.pre_tokenizer, backend.decoder = pre, decoders.ByteLevel()
    special = ["<begin>", "<stop>", "<end>", "<call>"]
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=special,
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [TEXT, "1234567890 20262026 111 22 It's hers, isn't it?  \n\n\n  x = y"] * 20
    backend.train_from_iterator(texts, trainer)
    backend.post_processor = TemplateProcessing(
        single="<begin> $A", special_tokens=[("<begin>", 0)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<begin>", eos_token="<stop>", chat_template=TEMPLATE
    )


def pieces(space_before: bool) -> PreTrainedTokenizerFast:
    """As sentencepiece: all pairs of a piece are merges, in the order of the pieces."""
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    special = ["<begin>", "<stop>", "<end>", "<call>", "<unk>"]
    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.Replace(" ", "\u2581")
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special + bytes_, show_progress=False, limit_alphabet=90
    )
    backend.train_from_iterator(TEXT.split(" ") * 3 + [" it is", " isn", "   x"] * 20, trainer)
    vocab = backend.get_vocab()
    merges = [
        (token[:i], token[i:])
        for token in sorted(vocab, key=vocab.__getitem__)
        if token not in special + bytes_
        for i in range(1, len(token))
        if token[:i] in vocab and token[i:] in vocab
    ]
    backend.model = models.BPE(vocab, merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    if space_before:
        backend.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
    backend.post_processor = TemplateProcessing(
        single="<begin> $A", special_tokens=[("<begin>", 0)]
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token="<begin>",
        eos_token="<stop>",
        unk_token="<unk>",
        chat_template=TEMPLATE,
    )


def model_of(
    tokenizer: Any,
    folder: Path,
    kind: Any = LlamaConfig,
    **config: Any,
) -> ModelSource:
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    shape |= {"num_attention_heads": 2, "eos_token_id": 1, "bos_token_id": 0, "pad_token_id": None}
    made = kind(vocab_size=len(tokenizer) + 2, **{**shape, "initializer_range": 0.2, **config})
    model = AutoModelForCausalLM.from_config(made)
    for name, weight in model.named_parameters():
        if weight.ndim == 1:  # none stays 0 or 1, which would hide what is missing
            nn.init.normal_(weight, 1.0 if name.endswith("norm.weight") else 0.0, 0.2)
    model.generation_config = GenerationConfig(eos_token_id=[2, 3], bos_token_id=0)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    trainable = resolve("causal_lm")
    data = {"max_bytes": 100_000}
    given = {"model_name_or_path": str(folder), "sequence_length": 48, "data": data}
    load = partial(trainable.exportable, trainable.Config.model_validate(given), folder)
    return ModelSource(
        folder,
        partial(load, folder.parent / "cache"),
        partial(copytree, folder, dirs_exist_ok=True),
    )


def field(reader: GGUFReader, name: str) -> Any:
    found = reader.get_field(f"tokenizer.{name}")
    return None if found is None else found.contents()


@pytest.mark.parametrize(
    ("name", "other", "pre", "whole_words"),
    [
        (b"gpt-2", b"qwen2", GPT2, False),
        (b"smollm", b"megrez", SMOLLM, False),  # of the same length; splits as qwen2
        (b"qwen2", b"gpt-2", QWEN2, False),
        (b"dbrx", b"olmo", LLAMA3, False),  # splits as gpt-2
        (b"llama-bpe", None, LLAMA3, True),
    ],
)
def test_llama_cpp_gives_the_tokens_of_texts_and_conversations(
    name: bytes, other: bytes | None, pre: PreTokenizer, whole_words: bool, tmp_path: Path
) -> None:
    """And notices another pre-tokenizer by the sample."""
    model = model_of(tokenizer_of(pre, whole_words), tmp_path / "model")
    Gguf().write(model, tmp_path)
    file = tmp_path / "model.gguf"
    assert field(GGUFReader(file), "ggml.pre") == name.decode()
    found = verify_export(tmp_path, LLAMA_CPP, model.exportable)
    assert found.passed
    assert found.tokens_equal
    if other:
        file.write_bytes(file.read_bytes().replace(name, other))
        assert verify_export(tmp_path, LLAMA_CPP, model.exportable).tokens_equal is False


def test_all_ends_the_beginning_and_the_template_are_in_the_file(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(GPT2)
    Gguf().write(model_of(tokenizer, tmp_path / "model"), tmp_path)
    reader = GGUFReader(tmp_path / "model.gguf")
    ends = [field(reader, f"ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")]
    assert ends == [1, 2, 3]
    assert field(reader, "ggml.bos_token_id") == 0
    assert field(reader, "ggml.add_bos_token") is True
    assert field(reader, "chat_template") == TEMPLATE


def test_text_begins_as_the_conversations_of_the_template_do(tmp_path: Path) -> None:
    """llama.cpp would put a beginning before them that the model has not seen."""
    tokenizer = tokenizer_of(GPT2)
    tokenizer.chat_template = TEMPLATE.removeprefix("{{ bos_token }}")
    model = model_of(tokenizer, tmp_path / "model")
    Gguf().write(model, tmp_path)
    assert field(GGUFReader(tmp_path / "model.gguf"), "ggml.add_bos_token") is False
    assert verify_export(tmp_path, LLAMA_CPP, model.exportable).tokens_equal


def normalized(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.backend_tokenizer.normalizer = normalizers.NFKC()


def prefixed(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.backend_tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=True)


def split_otherwise(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Split(Regex(r"\d"), "removed"), BYTES])


def stripped(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True)])


def with_many_ends(tokenizer: PreTrainedTokenizerFast) -> None:
    tokenizer.eos_token = "a"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (normalized, "NFKC"),
        (prefixed, "add_prefix_space"),
        (split_otherwise, "Removed"),
        (stripped, "<mask> with lstrip"),
        (with_many_ends, "4 tokens that end"),
    ],
)
def test_tokenizer_that_llama_cpp_does_not_have_is_refused(
    change: Any, what: str, tmp_path: Path
) -> None:
    tokenizer = tokenizer_of(GPT2)
    change(tokenizer)
    with pytest.raises(UserError, match=what):
        Gguf().write(model_of(tokenizer, tmp_path / "model"), tmp_path)
    assert not (tmp_path / "model.gguf").exists()


ROPE = {"rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}
FACTORS = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3_ROPE = {"rope_parameters": {**ROPE, **FACTORS}, "tie_word_embeddings": True}
YARN = {"rope_parameters": {**ROPE, "rope_type": "yarn"}, "max_position_embeddings": 64}
GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 6, "num_hidden_layers": 7}


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (LlamaConfig, {"head_dim": 32, "attention_bias": True, "mlp_bias": True, **LLAMA3_ROPE}),
        (LlamaConfig, {"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 1e4}}),
        (MistralConfig, {"sliding_window": None, "num_key_value_heads": 1, "head_dim": 32}),
        (MixtralConfig, {"num_local_experts": 4, "num_key_value_heads": 1}),
        (Qwen2Config, {**YARN, "num_key_value_heads": 1}),
        (Qwen3Config, {"num_key_value_heads": 1, "head_dim": 32}),
        (Gemma3TextConfig, {**GEMMA, "num_key_value_heads": 1}),
    ],
)
def test_llama_cpp_gives_the_logits_of_each_architecture(
    kind: type[PreTrainedConfig], config: dict[str, Any], tmp_path: Path
) -> None:
    model = model_of(tokenizer_of(QWEN2), tmp_path / "model", kind, **config)
    Gguf().write(model, tmp_path)
    for judge in Gguf().judges(tmp_path):
        found = verify_export(tmp_path, judge, model.exportable)
        assert found.passed, found.summary
    assert found.tokens_equal


@pytest.mark.parametrize("space_before", [True, False])
def test_llama_cpp_gives_the_tokens_of_sentencepiece(space_before: bool, tmp_path: Path) -> None:
    model = model_of(pieces(space_before), tmp_path / "model")
    Gguf().write(model, tmp_path)
    assert field(GGUFReader(tmp_path / "model.gguf"), "ggml.model") == "llama"
    found = verify_export(tmp_path, LLAMA_CPP, model.exportable)
    assert found.passed, found.summary
    assert found.tokens_equal


def test_merges_that_sentencepiece_does_not_make_are_refused(tmp_path: Path) -> None:
    source = model_of(pieces(space_before=False), tmp_path / "model")
    file = tmp_path / "model" / "tokenizer.json"
    made = json.loads(file.read_text())
    made["model"]["merges"].pop(0)
    file.write_text(json.dumps(made))
    with pytest.raises(UserError, match="merges"):
        Gguf().write(source, tmp_path)


def test_q4_k_m_is_smaller_and_its_loss_is_measured(tmp_path: Path) -> None:
    shape: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 3}
    model = model_of(tokenizer_of(GPT2), tmp_path / "model", **shape, initializer_range=0.05)
    GgufQ4().write(model, tmp_path)
    kinds = {t.name: t.tensor_type.name for t in GGUFReader(tmp_path / "model.gguf").tensors}
    assert kinds["blk.0.attn_q.weight"] == "Q4_K"
    assert kinds["output.weight"] == "Q6_K"
    for judge in GgufQ4.runtimes:
        found = verify_export(tmp_path, judge, model.exportable)
        assert found.passed, found.summary
        assert all(one > 1e-6 for one in found.divergences)
    (rounded := tmp_path / "rounded").mkdir()
    GgufQ4().write_rounded(model, rounded)
    auto: Any = AutoModelForCausalLM
    ids = model.exportable.examples[0]
    expected = auto.from_pretrained(tmp_path, gguf_file="model.gguf")(ids).logits
    torch.testing.assert_close(auto.from_pretrained(rounded)(ids).logits, expected)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"rope_parameters": {**ROPE, "rope_type": "yarn"}}, "yarn"),
        ({"rope_parameters": {**ROPE, "rope_type": "dynamic"}}, "dynamic"),
        ({"hidden_act": "gelu"}, "gelu"),
    ],
)
def test_model_that_llama_cpp_does_not_have_is_refused(
    config: dict[str, Any], what: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=what):
        Gguf().write(model_of(tokenizer_of(GPT2), tmp_path / "model", **config), tmp_path)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["model_type"] == "llama"
    assert not (tmp_path / "model.gguf").exists()
