"""Token ids by a byte-level BPE (of GPT-2, Llama 3, Qwen), which encodes each word once.

Most words of a text were in others before. `tokenizers` looks them up, too, but takes most of its
time for strings and offsets of their tokens.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any

import numpy as np
import numpy.typing as npt
import regex
from tokenizers import Tokenizer, models, normalizers

from trainables.client import Rows

Span = tuple[int, int]
"""First character, and the one behind the last."""
Flags = npt.NDArray[np.bool_]
MAX_TOKENS = 1 << 19
"""Tokens of the words that are kept: some 50 MB."""
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SYNTAX = re.compile(
    r"(?:[^\\.^$&{}()\[\]]|\\[rnsS/]|\\p\{\w+\}|\{\d+(?:,\d+)?\}(?!\+)|\[\^?(?!\[)|\]|\(\?(?:i:|:|!)|\))*"
)
"""Of patterns that mean the same to Oniguruma, the engine of `tokenizers`, and to `regex`."""
_HIDDEN = [i for i in range(256) if i == ord(" ") or not chr(i).isprintable()]
_BYTES = {byte: 256 + n for n, byte in enumerate(_HIDDEN)}
"""Characters in place of bytes that show none."""


class WordEncoder:
    """Finds the tokens that `tokenizers` finds."""

    def __init__(self, tokenizer: Tokenizer, pattern: str) -> None:
        self._tokenizer: Any = tokenizer
        self._added = {t.content: i for i, t in self._tokenizer.get_added_tokens_decoder().items()}
        added = "|".join(map(re.escape, sorted(self._added, key=len, reverse=True)))
        self._split = re.compile(f"({added or '(?!)'})").split
        self._find, self._find_ascii = regex.compile(pattern).findall, _ascii_words(pattern)
        self.knows = lru_cache(maxsize=None)(self._splits_alike)
        self._table = _WordTable(self._tokenizer.model, self._added)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> WordEncoder | None:
        """The encoder of a tokenizer; None: it is of another kind."""
        parts: Any = tokenizer
        added = parts.get_added_tokens_decoder().values()
        if (pattern := _pattern_of(parts)) is None or len({t.normalized for t in added}) > 1:
            return None
        if parts.encode_special_tokens or parts.truncation or parts.padding or parts.model.dropout:
            return None
        if any(
            t.lstrip or t.rstrip or t.single_word or t.content != t.content.strip() for t in added
        ):
            return None
        try:
            encoder = cls(tokenizer, pattern)
        except (re.error, regex.error):
            return None
        return encoder if all(encoder.knows(chr(i)) for i in range(128)) else None

    def encode(
        self, texts: Sequence[str], spans: Sequence[Sequence[Span]]
    ) -> list[tuple[Rows, Flags] | None]:
        """Token ids of each text, int64 [tokens], and whether they are in its spans.

        None: it must be left to `tokenizers`, because a span begins or ends within a word, or a
        character is another one to it.
        """
        if len(self._table.ids) > MAX_TOKENS:
            self._table = _WordTable(self._tokenizer.model, self._added)
        words = [self._words_of(text) for text in texts]
        ids, token_at, char_at = self._table.tokens(chain.from_iterable(words))
        begins = [0, *accumulate(map(len, words))]
        chars, tokens = char_at[begins].tolist(), token_at[begins].tolist()
        ends = [c + x for c, of in zip(chars, spans, strict=False) for span in of for x in span]
        nearest = np.minimum(np.searchsorted(char_at, ends), len(char_at) - 1)
        exact = iter(np.where(char_at[nearest] == ends, token_at[nearest], -1).tolist())
        found, counted = list[tuple[Rows, Flags] | None](), np.zeros(len(ids), np.bool_)
        for i, (text, of) in enumerate(zip(texts, spans, strict=True)):
            known, tokens_of = chars[i + 1] - chars[i] == len(text), slice(*tokens[i : i + 2])
            for (first, last), begin, end in zip(of, exact, exact, strict=False):
                # offsets may leave out a space that ends a token or begins a text
                spaced = text[last - 1 : last] == " " or (first == 0 and text[:1] == " ")
                known = known and begin >= 0 and end >= 0 and not spaced
                if known:
                    counted[begin:end] = True
            found.append((ids[tokens_of], counted[tokens_of]) if known else None)
        return found

    def _words_of(self, text: str) -> list[str]:
        """The words of a text; not all of it if those of `tokenizers` may be others."""
        find = self._find_ascii
        if not text.isascii():
            find, normalizer = self._find, self._tokenizer.normalizer
            if normalizer and normalizer.normalize_str(text) != text:
                return []
            if not all(map(self.knows, set(text))):
                return []
        words = list[str]()
        for i, part in enumerate(self._split(text)):
            words += [part] if i % 2 else find(part)
        return words

    def _splits_alike(self, char: str) -> bool:
        """Whether a character is of the same kind to both engines of patterns."""
        probe = f"a{char}b 1{char}2 !{char}! {char}{char}\n{char}\n A{char}A '{char} {char}'s"
        found = self._tokenizer.pre_tokenizer.pre_tokenize_str(probe)
        find = self._find_ascii if char.isascii() else self._find
        return find(probe) == [probe[begin:end] for _, (begin, end) in found]


class _WordTable(dict[str, int]):
    """Numbers of words, by which their tokens and lengths are found."""

    def __init__(self, model: Any, added: dict[str, int]) -> None:
        super().__init__()
        self._model, self._added = model, added
        self.ids, self._begins, self._sizes, self._lengths = (array("q") for _ in range(4))

    def __missing__(self, word: str) -> int:
        if word in self._added:
            found = [self._added[word]]
        else:
            in_bytes = word.encode().decode("latin-1").translate(_BYTES)
            found = [token.id for token in self._model.tokenize(in_bytes)]
        self._begins.append(len(self.ids))
        self._sizes.append(len(found))
        self._lengths.append(len(word))
        self.ids.extend(found)
        self[word] = number = len(self)
        return number

    def tokens(self, words: Iterable[str]) -> tuple[Rows, Rows, Rows]:
        """Token ids of words, and the first token and character of each, and behind the last."""
        numbers = np.array([*map(self.__getitem__, words)], dtype=np.int64)
        begins, sizes, lengths = (
            np.asarray(each)[numbers] for each in (self._begins, self._sizes, self._lengths)
        )
        token_at, char_at = (np.append(0, np.cumsum(each)) for each in (sizes, lengths))
        places = np.repeat(begins - token_at[:-1], sizes) + np.arange(token_at[-1])
        return np.asarray(self.ids)[places], token_at, char_at


def _ascii_words(pattern: str) -> Callable[[str], list[str]]:
    """Finds the words of ASCII texts by `re`, which takes half the time of `regex`."""

    def members(kind: re.Match[str]) -> str:
        return re.escape("".join(c for c in map(chr, range(128)) if regex.fullmatch(kind[0], c)))

    def translated(part: re.Match[str]) -> str:
        shown = re.sub(r"\\p\{\w+\}", members, part[0])
        return shown if part[0][0] == "[" else f"[{shown}]" if shown else "(?!)"

    return re.compile(re.sub(r"\[[^]]+\]|\\p\{\w+\}", translated, pattern), re.ASCII).findall


def _pattern_of(tokenizer: Any) -> str | None:
    """The pattern of the words of a byte-level BPE; None: it is none, or another may be meant."""
    parts, model, normalizer = tokenizer.pre_tokenizer, tokenizer.model, tokenizer.normalizer
    if not isinstance(model, models.BPE) or not isinstance(normalizer, normalizers.NFC | None):
        return None
    state = json.loads(parts.__getstate__()) if parts else {}
    match state.get("pretokenizers", [state]):
        case [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]:
            return _GPT2
        case [
            {
                "type": "Split",
                "pattern": {"Regex": str(pattern)},
                "behavior": "Isolated",
                "invert": False,
            },
            {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
        ] if _SYNTAX.fullmatch(pattern):
            return pattern
    return None
