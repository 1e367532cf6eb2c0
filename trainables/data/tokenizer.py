"""The two kinds of tokenizer: a byte-level BPE trained on the train split, or a pretrained one."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from search_spaces.errors import UserError
from trainables.client import Rows
from trainables.data.word_encoder import WordEncoder
from trainables.training.start_model import loading

END = "<|endoftext|>"
ENCODE_AT_ONCE = 256
_NO_SIZES: Rows = np.empty(0, dtype=np.int64)


class TokenSettings(Protocol):
    """The hyperparameters of a model that its tokens depend on."""

    @property
    def vocab_size(self) -> int:
        """Tokens of a tokenizer that is trained, at most."""
        ...

    @property
    def sequence_length(self) -> int:
        """Tokens of an input."""
        ...

    @property
    def tokenizer_from(self) -> str | None:
        """Folder or hub id of a pretrained tokenizer; None: one is trained on the data."""
        ...


@dataclass(frozen=True)
class Encoder:
    """Text to token ids; documents end with `end`, and begin with `begin` if a model expects it."""

    tokenizer: Tokenizer
    end: int
    begin: int | None = None

    @cached_property
    def words(self) -> WordEncoder | None:
        """Finds the same tokens faster, if it can."""
        return WordEncoder.of(self.tokenizer)

    @property
    def size(self) -> int:
        """Token ids are below this."""
        return int(self.tokenizer.get_vocab_size())

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest type of its token ids."""
        return np.dtype(np.uint16 if self.size <= 1 << 16 else np.uint32)

    def encode(
        self, texts: Iterable[str], *, measured: bool = False
    ) -> Iterator[tuple[list[int], Rows]]:
        """Token ids of each text, with those around it; and their sizes, int64, if measured.

        The sizes of a text's tokens, the bytes of text that each stands for, add up to its UTF-8
        bytes, for any tokenizer: what it drops (spaces, for example) counts for the next token, and
        the rest for the end token.
        """
        encode = self.tokenizer.encode_batch if measured else self.tokenizer.encode_batch_fast
        left, first = iter(texts), [] if self.begin is None else [self.begin]
        while batch := list(itertools.islice(left, ENCODE_AT_ONCE)):
            found = encode(batch, add_special_tokens=False)
            for text, tokens in zip(batch, found, strict=True):
                ends = [0] * len(first) + [e for _, e in tokens.offsets]
                yield [*first, *tokens.ids, self.end], _sizes(text, ends) if measured else _NO_SIZES


def _sizes(text: str, ends: list[int]) -> Rows:
    """Bytes between the ends of tokens (characters of the text), and behind the last one."""
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    widths = 1 + np.searchsorted([0x80, 0x800, 0x10000], characters, side="right")
    before = np.concatenate([[0], np.cumsum(widths)])
    until = np.maximum.accumulate([0, *ends, len(text)])
    sizes: Rows = np.diff(before[until])
    return sizes


def train_bpe(texts: Iterable[str], vocab_size: int) -> Encoder:
    """A byte-level BPE (as in GPT-2, Radford et al. 2019) of at most `vocab_size` tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Encoder(tokenizer, int(tokenizer.token_to_id(END) or 0))


def wrap_bpe(file: Path, sequence_length: int) -> Any:
    """A trained BPE in the form that `transformers` saves and loads."""
    import transformers

    fast: Any = transformers.PreTrainedTokenizerFast
    return fast(tokenizer_file=str(file), eos_token=END, model_max_length=sequence_length)


def load_pretrained(name: str) -> Any:
    """The `transformers` tokenizer of a folder or hub id; its own code is not run.

    Raises:
        UserError: the folder is gone, or holds no tokenizer.
    """
    from transformers import AutoTokenizer

    with loading(name):
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def pad_token(tokenizer: Any) -> int:
    """The token of the padding of a `transformers` tokenizer; one without any gets that of its end.

    Raises:
        UserError: it has neither.
    """
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise UserError(f"{tokenizer.name_or_path}: its tokenizer has no token for padding")
    return int(tokenizer.pad_token_id)


def open_encoder(config: TokenSettings, trained: Path | None = None) -> Encoder | None:
    """The encoder of a pretrained tokenizer, or of one in the file `trained`; None: it is trained
    on the data."""
    if config.tokenizer_from is not None:
        return pretrained_encoder(config.tokenizer_from)
    if trained is None:
        return None
    tokenizer = Tokenizer.from_file(str(trained))
    return Encoder(tokenizer, int(tokenizer.token_to_id(END) or 0))


def describe(encoder: Encoder | None, vocab_size: int) -> str:
    """What a cache's key has of a tokenizer."""
    if encoder is None:
        return f"bpe {vocab_size} by tokenizers {tokenizers.__version__}"
    text = f"{encoder.tokenizer.to_str()} ends with {encoder.end}"
    text += "" if encoder.begin is None else f" after {encoder.begin}"
    return hashlib.sha256(text.encode()).hexdigest()


def pretrained_encoder(name: str) -> Encoder:
    """An encoder of a pretrained tokenizer.

    Raises:
        UserError: it has no fast form, or no token that ends a text.
    """
    return encoder_of(load_pretrained(name), name)


def encoder_of(tokenizer: Any, name: str) -> Encoder:
    """An encoder of a `transformers` tokenizer; `name` and errors as of `pretrained_encoder`."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"{name}: its tokenizer has no fast form")
    ends = (tokenizer.eos_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id)
    end = next((token for token in ends if token is not None), None)
    if end is None:
        raise UserError(f"{name}: its tokenizer has no token that ends a text")
    backend.no_truncation()
    backend.no_padding()
    begin = tokenizer.bos_token_id
    begins = begin != end and backend.encode("").ids[:1] == [begin]
    return Encoder(backend, int(end), begin if begins else None)
