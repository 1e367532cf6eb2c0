"""The fields of a GGUF file that describe a tokenizer, or why llama.cpp has no such tokenizer.

llama.cpp knows pre-tokenizers by names, each a list of patterns (`src/llama-vocab.cpp`). A name is
chosen by the patterns of the tokenizer itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError

_GPT2 = "ByteLevel"
"""The pattern that a `ByteLevel` pre-tokenizer contains."""
_DIGIT = r"\p{N}"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_NAMES = {
    ((_GPT2,), False): "gpt-2",
    ((_DIGIT, _GPT2), False): "smollm",
    ((_WORDS + _DIGIT + _REST,), False): "qwen2",
    ((_WORDS + _DIGIT + "{1,3}" + _REST,), False): "dbrx",
    ((_WORDS + _DIGIT + "{1,3}" + _REST,), True): "llama-bpe",
}
"""Patterns, and whether a word of the vocabulary is taken whole → name of the pre-tokenizer."""
_PLAIN = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback")
_CONVERSATION = (
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b"},
    {"role": "user", "content": "c"},
)


def tokenizer_fields(folder: Path, vocab_size: int) -> dict[str, Any]:
    """Arguments of the methods `add_*` of `gguf.GGUFWriter`, by what follows `add_`.

    Args:
        folder: of `transformers`.
        vocab_size: of the model.

    Raises:
        UserError: llama.cpp would give other tokens than the tokenizer.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    described = json.loads(tokenizer.backend_tokenizer.to_str())
    ends = _ends(folder, tokenizer)
    if not 1 <= len(ends) <= 3:
        raise _inexpressible(f"{len(ends)} tokens that end a text; GGUF has room for one to three")
    kinds = ("eos_token_id", "eot_token_id", "eom_token_id")
    fields = {
        "tokenizer_model": "gpt2",
        "tokenizer_pre": _pre_tokenizer(described),
        **_vocabulary(described, vocab_size),
        **dict(zip(kinds, ends, strict=False)),
        "bos_token_id": tokenizer.bos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "chat_template": _template(tokenizer.chat_template),
        **_added(tokenizer, ends[0]),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _inexpressible(what: str) -> UserError:
    return UserError(f"--to gguf: llama.cpp cannot express the tokenizer: it has {what}")


def _ends(folder: Path, tokenizer: Any) -> list[int]:
    """All tokens at which generation stops, that of the tokenizer first."""
    found = [tokenizer.eos_token_id]
    for name in ("generation_config.json", "config.json"):
        if (file := folder / name).is_file():
            given = json.loads(file.read_text()).get("eos_token_id")
            found += given if isinstance(given, list) else [given]
    return list(dict.fromkeys(token for token in found if token is not None))


def _pre_tokenizer(tokenizer: Mapping[str, Any]) -> str:
    bpe, normalizer = tokenizer["model"], tokenizer["normalizer"]
    if bpe["type"] != "BPE":
        raise _inexpressible(f"a {bpe['type']} model, not a byte-level BPE")
    if normalizer and normalizer != {"type": "Sequence", "normalizers": []}:
        raise _inexpressible(f"the normalizer {_types(normalizer, 'normalizers')}")
    for setting in _PLAIN:
        if bpe.get(setting):
            raise _inexpressible(f"a BPE with {setting}: {bpe[setting]}")
    steps = _steps(tokenizer["pre_tokenizer"])
    patterns = tuple(pattern for step in steps for pattern in _patterns(step))
    name = _NAMES.get((patterns, bool(bpe.get("ignore_merges"))))
    if name is None or not steps or steps[-1]["type"] != "ByteLevel":
        raise _inexpressible(
            f"the pre-tokenizer {patterns} with ignore_merges: {bpe.get('ignore_merges')}"
        )
    return name


def _types(step: Mapping[str, Any], parts: str) -> str:
    return ", ".join(_types(one, parts) for one in step.get(parts, ())) or str(step["type"])


def _steps(step: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    if step is None:
        return []
    return [one for part in step.get("pretokenizers", ()) for one in _steps(part)] or [step]


def _patterns(step: Mapping[str, Any]) -> Iterator[str]:
    match step:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}:
            yield from [_GPT2] * use_regex
        case {"type": "Digits", "individual_digits": True}:
            yield _DIGIT
        case {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", **rest}:
            yield f"{regex}{' inverted' * bool(rest.get('invert'))}"
        case _:
            yield json.dumps(step)  # the name of none


def _vocabulary(tokenizer: Mapping[str, Any], size: int) -> dict[str, Any]:
    from gguf import TokenType

    bpe, added = tokenizer["model"], {t["id"]: t for t in tokenizer["added_tokens"]}
    for token in added.values():
        for name in ("lstrip", "rstrip", "single_word"):
            if token[name]:
                raise _inexpressible(f"the token {token['content']} with {name}")
    by_id = {i: token for token, i in bpe["vocab"].items()}
    by_id |= {i: token["content"] for i, token in added.items()}
    if max(by_id) >= size:
        raise _inexpressible(f"{max(by_id) + 1} tokens, and the model {size}")
    kinds = [TokenType.NORMAL if i in by_id else TokenType.UNUSED for i in range(size)]
    for i, token in added.items():
        kinds[i] = TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]]
    return {
        "token_list": [by_id.get(i, f"[PAD{i}]") for i in range(size)],
        "token_types": kinds,
        "token_merges": merges,
    }


def _template(found: str | dict[str, str] | None) -> Any:
    if isinstance(found, dict):
        return [{"name": name, "template": text} for name, text in found.items()]
    return found


def _added(tokenizer: Any, end: int) -> dict[str, bool]:
    """Whether llama.cpp puts tokens around a text: as the tokenizer does.

    It does not begin a text where the chat template does not begin a conversation with that token:
    llama.cpp would, and the model has not seen it there.
    """
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    at = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    before, after = whole[:at], whole[at + len(plain) :]
    if before not in ([], [tokenizer.bos_token_id]) or after not in ([], [end]):
        raise _inexpressible(
            f"the tokens {tokenizer.convert_ids_to_tokens(before + after)} around each text"
        )
    begins = bool(before) and _conversation(tokenizer).startswith(tokenizer.bos_token)
    return {"add_bos_token": begins, "add_eos_token": bool(after)}


def _conversation(tokenizer: Any) -> str:
    """A conversation by the chat template; without one the token that begins a text."""
    if not tokenizer.chat_template:
        return str(tokenizer.bos_token)
    try:
        return str(tokenizer.apply_chat_template(list(_CONVERSATION), tokenize=False))
    except Exception as e:  # a template may raise anything
        raise _inexpressible(f"a chat template that does not render a conversation ({e})") from e
