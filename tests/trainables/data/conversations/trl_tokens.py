"""Token ids and masks of trl's SFTTrainer: a reference for those of `sft`.

    pip install trl==1.16.0
    python -m tests.trainables.data.conversations.trl_tokens      # rewrites trl_tokens.json

The chat templates are made after public ones, in other words, and mark with `{% generation %}` what
a model writes: trl counts that (`assistant_only_loss`). trl is no dependency of the tests, as it
takes seconds to import; they read what it found.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

Counted = tuple[list[int], str]
"""Token ids, and a 1 for each that counts."""
FILE = Path(__file__).with_suffix(".json")
TEMPLATES = {file.stem: file.read_text() for file in Path(__file__).parent.glob("templates/*")}
UNMARKED = {
    name: text.replace("endgeneration", "endif").replace("generation %", "if true %")
    for name, text in TEMPLATES.items()
}
ENDS = "<|im_end|> <|eot_id|> <|end|> <|return|> <|call|> <end_of_turn> <|END_OF_TURN_TOKEN|>"
MARKS = (
    "<s> </s> <|im_start|> <|start_header_id|> <|end_header_id|> <|start|> <|channel|> <|message|>"
)
CALL = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Bonn"}}}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def message(role: str, content: str | None, **more: Any) -> dict[str, Any]:
    """One message."""
    return {"role": role, "content": content, **more}


TURNS = [
    message("user", "What is 2?"),
    message("assistant", "A number."),
    message("user", "And Ω?"),
    message("assistant", "A letter,\n\nGreek."),
]
TALKS: dict[str, dict[str, Any]] = {
    "turns": {"messages": TURNS},
    "system": {"messages": [message("system", "Be brief. /no_think"), *TURNS]},
    "repeated": {"messages": [TURNS[0], TURNS[1], TURNS[0], TURNS[1]]},
    "thoughts": {
        "messages": [
            {**m, "content": f"<think>\nHm {i}.\n</think>\n\n{m['content']}"} if i % 2 else m
            for i, m in enumerate(TURNS)
        ]
    },
    "reasoning": {
        "messages": [
            {**m, "thinking": f"Hm {i}.", "reasoning_content": f"Hm {i}."} if i % 2 else m
            for i, m in enumerate(TURNS)
        ]
    },
    "tools": {
        "messages": [
            message("user", "Rain?"),
            message("assistant", "", tool_calls=[CALL]),
            message("tool", "21 degrees"),
            message("assistant", "No, 21 degrees."),
            *TURNS[2:],
        ],
        "tools": [TOOL],
    },
}


ROWS: dict[str, dict[str, Any]] = {
    "messages": {"messages": [message("system", "Be brief."), *TURNS]},
    "completion": {"prompt": TURNS[:1], "completion": TURNS[1:2]},
    "pair": {"prompt": TURNS[:1], "chosen": TURNS[1:2], "rejected": TURNS[3:]},
}
"""Rows of trl that mean the same as rows in other forms."""


def renders(name: str, talk: str) -> bool:
    """Whether a template has a place for all of a conversation."""
    if talk == "system":
        return "mistral" not in name
    words = {"tools": ("tools",), "reasoning": ("reasoning_content", "message.thinking")}
    return any(word in TEMPLATES[name] for word in words.get(talk, ("",)))


def byte_tokenizer(template: str) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes, pairs that cross the ends of messages, and special tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("Ċ", "Ċ"), (".", "Ċ"), (":", "Ġ"), ("Ġ", "A"), ("A", "Ġ"), ("e", "r")]
    names = [*letters, *(a + b for a, b in pairs)]
    tokenizer = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [*MARKS.split(), *ENDS.split()]
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        chat_template=template,
    )


def tiny_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A model, as trl wants one."""
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1}
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=1, **sizes))


def tokens_of_trl(
    tokenizer: PreTrainedTokenizerFast, row: dict[str, Any], folder: Path, **options: Any
) -> Counted:
    """The ids of a row, and whether each counts, by trl."""
    import trl
    from datasets import Dataset

    arguments = trl.SFTConfig(
        output_dir=str(folder / "out"),
        max_length=None,
        packing=False,
        use_cpu=True,
        bf16=False,
        report_to=[],
        disable_tqdm=True,
        **options,
    )
    trainer = trl.SFTTrainer(
        model=tiny_model(tokenizer),
        args=arguments,
        train_dataset=Dataset.from_list([row]),
        processing_class=tokenizer,
    )
    batch = trainer.data_collator([trainer.train_dataset[0]])
    labels = batch["labels"][0].tolist()
    return batch["input_ids"][0].tolist(), "".join("01"[label != -100] for label in labels)


def pairs_of_trl(
    tokenizer: PreTrainedTokenizerFast, row: dict[str, Any], folder: Path
) -> list[Counted]:
    """The ids of both answers with their question, and whether each counts, by trl."""
    import trl
    from datasets import Dataset

    arguments = trl.DPOConfig(
        output_dir=str(folder / "out"), max_length=None, use_cpu=True, bf16=False, report_to=[]
    )
    tiny_model(tokenizer).save_pretrained(folder / "model")
    trainer = trl.DPOTrainer(
        model=str(folder / "model"),
        args=arguments,
        train_dataset=Dataset.from_list([row]),
        processing_class=tokenizer,
    )
    found = trainer.train_dataset[0]
    prompt = found["prompt_ids"]
    return [
        (prompt + answer, "0" * len(prompt) + "1" * len(answer))
        for answer in (found["chosen_ids"], found["rejected_ids"])
    ]


def main() -> None:
    """Write the tokens of all templates and conversations."""
    import transformers
    import trl

    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, template in sorted(TEMPLATES.items()):
            for talk, row in TALKS.items():
                if renders(name, talk):
                    found.setdefault(name, {})[talk] = tokens_of_trl(
                        byte_tokenizer(template), row, Path(folder), assistant_only_loss=True
                    )
        tokenizer, rows = byte_tokenizer(TEMPLATES["chatml"]), {}
        rows["messages"] = [
            tokens_of_trl(tokenizer, ROWS["messages"], Path(folder), assistant_only_loss=True)
        ]
        rows["completion"] = [tokens_of_trl(tokenizer, ROWS["completion"], Path(folder))]
        rows["pair"] = pairs_of_trl(tokenizer, ROWS["pair"], Path(folder))
        found["rows"] = rows
    versions = {m.__name__: m.__version__ for m in (trl, transformers)}
    lines = {name: json.dumps(talks, separators=(",", ":")) for name, talks in found.items()}
    body = ",\n".join(f' "{name}": {line}' for name, line in lines.items())
    FILE.write_text(f'{{\n "versions": {json.dumps(versions)},\n{body}\n}}\n')


if __name__ == "__main__":
    main()
