"""Prompts in the form of the texts that a language model learned from."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from tuning.evaluation.text_model import TextModel


def test_a_prompt_begins_as_texts_do_in_training() -> None:
    tokenizer = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "one": 2, "two": 3}))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 0)]
    )
    fast: Any = transformers.PreTrainedTokenizerFast
    template = "{{ bos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"
    given = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    shape = SimpleNamespace(config=SimpleNamespace(max_position_embeddings=9))
    model = TextModel("mine", shape, fast(tokenizer_object=tokenizer, **given))
    assert model.encode("one two", chat=False) == [0, 2, 3]
    assert model.encode("<s> two", chat=False) == [0, 3]
    assert model.encode("two", chat=True) == [0, 3]
