"""The two kinds of tokenizer: a byte-level BPE trained on the train split, or a pretrained one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from search_spaces.errors import UserError

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
        batch: list[str] = []
        for text in texts:
            batch.append(text)
            if len(batch) == ENCODE_AT_ONCE:
                yield from self._encode(batch)
                batch = []
        yield from self._encode(batch)

    def _encode(self, texts: list[str]) -> Iterator[list[int]]:
        for found in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False):
            yield [*found.ids, self.end]


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
    """The `transformers` tokenizer of a folder or hub id; its own code is not run."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def pretrained_encoder(name: str) -> Encoder:
    """An encoder of a pretrained tokenizer.

    Raises:
        UserError: it has no fast form, or no token that ends a text.
    """
    tokenizer = load_pretrained(name)
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"model_name_or_path {name}: its tokenizer has no fast form")
    ends = (tokenizer.eos_token_id, tokenizer.sep_token_id, tokenizer.bos_token_id)
    end = next((token for token in ends if token is not None), None)
    if end is None:
        raise UserError(f"model_name_or_path {name}: its tokenizer has no token that ends a text")
    backend.no_truncation()
    backend.no_padding()
    return Encoder(backend, int(end))
