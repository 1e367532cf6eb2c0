"""The two kinds of tokenizer: a byte-level BPE trained on the train split, or a pretrained one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from search_spaces.errors import UserError
from trainables.client import Rows
from trainables.training.start_model import require_folder

END = "<|endoftext|>"
ENCODE_AT_ONCE = 256


@dataclass(frozen=True)
class Encoder:
    """Text to token ids; each document ends with the token `end`, so that they can be packed."""

    tokenizer: Tokenizer
    end: int

    @property
    def size(self) -> int:
        """Token ids are below this."""
        return int(self.tokenizer.get_vocab_size())

    def encode(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Token ids of each text, including its end token."""
        for batch in _batches(texts):
            for found in self.tokenizer.encode_batch_fast(batch, add_special_tokens=False):
                yield [*found.ids, self.end]

    def encode_measured(self, texts: Iterable[str]) -> Iterator[tuple[list[int], Rows]]:
        """Token ids as of `encode`, and the bytes of text that each stands for, int64.

        The sizes of a text's tokens add up to its UTF-8 bytes, for any tokenizer: what it drops
        (spaces, for example) counts for the next token, and the rest for the end token.
        """
        for batch in _batches(texts):
            found = self.tokenizer.encode_batch(batch, add_special_tokens=False)
            for text, tokens in zip(batch, found, strict=True):
                yield [*tokens.ids, self.end], _sizes(text, [end for _, end in tokens.offsets])


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    left = iter(texts)
    while batch := list(itertools.islice(left, ENCODE_AT_ONCE)):
        yield batch


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
        UserError: the folder is gone.
    """
    from transformers import AutoTokenizer

    require_folder(name)
    return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def backend_tokenizer(name: str | None, trained: Path) -> Tokenizer:
    """The tokenizer of a pretrained model; with no name, the BPE in the file `trained`."""
    return Tokenizer.from_file(str(trained)) if name is None else pretrained_encoder(name).tokenizer


def pretrained_encoder(name: str) -> Encoder:
    """An encoder of a pretrained tokenizer.

    Raises:
        UserError: it has no fast form, or no token that ends a text.
    """
    tokenizer = load_pretrained(name)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"{name}: its tokenizer has no fast form")
    ends = (tokenizer.eos_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id)
    end = next((token for token in ends if token is not None), None)
    if end is None:
        raise UserError(f"{name}: its tokenizer has no token that ends a text")
    backend.no_truncation()
    backend.no_padding()
    return Encoder(backend, int(end))
