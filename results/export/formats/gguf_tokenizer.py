"""The fields of a GGUF file that describe a tokenizer, or why llama.cpp has no such tokenizer.

llama.cpp knows pre-tokenizers by names, each a list of patterns (`src/llama-vocab.cpp`). A name is
chosen by the patterns of the tokenizer itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from search_spaces.errors import UserError

NORMAL_FORM = "NFC"
"""The Unicode normalizer that is left out."""
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
_PLAIN = ("dropout", "continuing_subword_prefix", "end_of_word_suffix")
_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
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
    bpe = described["model"]
    if bpe["type"] != "BPE":
        raise _inexpressible(f"a {bpe['type']} model, not a BPE")
    for setting in _PLAIN:
        if bpe.get(setting):
            raise _inexpressible(f"a BPE with {setting}: {bpe[setting]}")
    fields = {
        **(_pieces(described, vocab_size) if bpe.get("byte_fallback") else _byte_level(described)),
        **_vocabulary(described, vocab_size),
        **dict(zip(kinds, ends, strict=False)),
        "bos_token_id": tokenizer.bos_token_id,
        "unk_token_id": tokenizer.unk_token_id,
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


def _byte_level(tokenizer: Mapping[str, Any]) -> dict[str, Any]:
    bpe, normalizer = tokenizer["model"], tokenizer["normalizer"]
    # llama.cpp does not compose: it gives the same tokens of texts that are composed already.
    if [step for step in _steps(normalizer, "normalizers") if step["type"] != NORMAL_FORM]:
        raise _inexpressible(f"the normalizer {_types(normalizer, 'normalizers')}")
    steps = _steps(tokenizer["pre_tokenizer"])
    patterns = tuple(pattern for step in steps for pattern in _patterns(step))
    name = _NAMES.get((patterns, bool(bpe.get("ignore_merges"))))
    if name is None or not steps or steps[-1]["type"] != "ByteLevel":
        raise _inexpressible(
            f"the pre-tokenizer {patterns} with ignore_merges: {bpe.get('ignore_merges')}"
        )
    merges = [m if isinstance(m, str) else " ".join(m) for m in bpe["merges"]]
    return {"tokenizer_model": "gpt2", "tokenizer_pre": name, "token_merges": merges}


def _pieces(tokenizer: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Of sentencepiece: llama.cpp joins the pair that gives the piece of the highest score.

    That is what the merges say if they have all pairs of a piece, one after the other.
    """
    bpe = tokenizer["model"]
    if missing := [name for name in _BYTES if name not in bpe["vocab"]]:
        raise _inexpressible(f"no token {missing[0]}")
    pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in bpe["merges"]]
    ranks: dict[str, list[int]] = {}
    for rank, pair in enumerate(pairs):
        ranks.setdefault("".join(pair), []).append(rank)
    vocabulary, merged = bpe["vocab"], set(pairs)
    added = {t["content"] for t in tokenizer["added_tokens"]}
    for token in vocabulary.keys() - added:
        own = ranks.get(token, [])
        cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
        unlisted = [
            c for c in cuts if c[0] in vocabulary and c[1] in vocabulary and c not in merged
        ]
        if unlisted or (own and own[-1] - own[0] >= len(own)):
            raise _inexpressible(f"merges that are not those of sentencepiece, at {token!r}")
    scores = [0.0] * size
    for token, i in vocabulary.items():
        scores[i] = -float(ranks[token][0]) if token in ranks else -float(len(pairs))
    begins = _begins_with_space(tokenizer)
    names = {"tokenizer_model": "llama", "tokenizer_pre": "default", "token_scores": scores}
    return {**names, "add_space_prefix": begins}


def _begins_with_space(tokenizer: Mapping[str, Any]) -> bool:
    """Whether each piece of text gets a space before it, as llama.cpp can put it there."""
    before = _steps(tokenizer["normalizer"], "normalizers")
    pre = _steps(tokenizer["pre_tokenizer"])
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    match [*before, *pre]:
        case [{"type": "Prepend", "prepend": "\u2581"}, replaced] if replaced == spaces:
            return True
        case [replaced] if replaced == spaces:
            return False
        case [replaced, {"type": "Split", "pattern": {"String": " "}}] if replaced == spaces:
            return False  # nothing is left to split
        case [{"type": "Metaspace", "prepend_scheme": "never", "split": False}]:
            return False
    raise _inexpressible(f"a sentencepiece model with {json.dumps([*before, *pre])}")


def _types(step: Mapping[str, Any], parts: str) -> str:
    return ", ".join(_types(one, parts) for one in step.get(parts, ())) or str(step["type"])


def _steps(step: Mapping[str, Any] | None, parts: str = "pretokenizers") -> list[Mapping[str, Any]]:
    if step is None:
        return []
    return [
        one
        for part in step.get(parts, [step])
        for one in ([step] if part is step else _steps(part, parts))
    ]


def _patterns(step: Mapping[str, Any]) -> Iterator[str]:
    match step:
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": use_regex}:
            yield from [_GPT2] * use_regex
        case {"type": "Digits", "individual_digits": True}:
            yield _DIGIT
        case {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", **rest}:
            yield f"{regex} inverted" if rest.get("invert") else regex
        case _:
            yield json.dumps(step)  # the name of none


def _vocabulary(tokenizer: Mapping[str, Any], size: int) -> dict[str, Any]:
    from gguf import TokenType

    bpe, added = tokenizer["model"], {t["id"]: t for t in tokenizer["added_tokens"]}
    for token, name in product(added.values(), ("lstrip", "rstrip", "single_word")):
        if token[name]:
            raise _inexpressible(f"the token {token['content']} with {name}")
    by_id = {i: token for token, i in bpe["vocab"].items()}
    by_id |= {i: token["content"] for i, token in added.items()}
    if max(by_id) >= size:
        raise _inexpressible(f"{max(by_id) + 1} tokens, and the model {size}")
    kinds = [TokenType.NORMAL if i in by_id else TokenType.UNUSED for i in range(size)]
    for i, token in added.items():
        kinds[i] = TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
    if bpe.get("byte_fallback"):
        unknown = dict.fromkeys(filter(None, [bpe["unk_token"]]), TokenType.UNKNOWN)
        for name, kind in (dict.fromkeys(_BYTES, TokenType.BYTE) | unknown).items():
            kinds[bpe["vocab"][name]] = kind
    return {
        "token_list": [by_id.get(i, f"[PAD{i}]") for i in range(size)],
        "token_types": kinds,
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
