"""Preparing rows for fine-tuning, beside `datasets.map` with the steps of trl's SFTTrainer.

    python -m benchmarks.data [--rows 100000] [--turns 1] [--contenders ours datasets tokenizer]

The rows are questions with answers, of about 300 bytes of JSON; with several turns, conversations
of so many of them. Each contender is a process of its own on one core: it reads them, renders the
chat template, encodes the text, and finds the tokens of the answers. Ours also splits, packs and
writes the arrays that all trials map into memory. `tokenizer` only encodes rendered texts. The
seconds are of the core, behind a warm-up by a few rows; the memory is the largest of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VOCABULARY = 4096
WARM_UP = 100
QUIET = {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)


def write_rows(file: Path, count: int, turns: int = 1) -> None:
    """Rows of words that are drawn by Zipf's law; with several turns, as OpenAI's messages."""
    rng, letters = random.Random(0), "abcdefghijklmnoprstuvw"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 8))) for _ in range(20_000)]
    drawn = rng.choices(words, [1 / (n + 3) for n in range(len(words))], k=4_000_000)
    with open(file, "w") as lines:
        for number in range(count):
            row, said = dict[str, Any](), list[dict[str, str]]()
            for _ in range(turns):
                begin, asked = rng.randrange(len(drawn) - 100), rng.randint(6, 14)
                end = begin + asked + rng.randint(24, 48)
                question = f"{number} " + " ".join(drawn[begin : begin + asked])
                row = {"question": question, "answer": " ".join(drawn[begin + asked : end])}
                said.extend(messages(row))
            lines.write(json.dumps(row if turns == 1 else {"messages": said}) + "\n")


def messages(row: dict[str, Any]) -> list[dict[str, str]]:
    """A row as messages."""
    if "messages" in row:
        return list(row["messages"])
    roles = {"user": row["question"], "assistant": row["answer"]}
    return [{"role": role, "content": text} for role, text in roles.items()]


def write_tokenizer(rows: Path, folder: Path) -> None:
    """A byte-level BPE of the rows, with a chat template."""
    from itertools import islice

    from trainables.data.tokenizer import train_bpe, wrap_bpe

    with open(rows) as lines:
        encoder = train_bpe(islice(lines, 20_000), VOCABULARY)
    encoder.tokenizer.save(str(folder.with_suffix(".json")))
    tokenizer = wrap_bpe(folder.with_suffix(".json"), 256)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)


def ours(rows: Path, tokenizer: Path, cache: Path) -> int:
    """Prepare the arrays; returns the number of packed sequences."""
    from trainables.data.conversations.dataset import prepare
    from trainables.sft.config import SFTConfig

    data = {"source": "files", "paths": [str(rows)]}
    settings = {"tokenizer": str(tokenizer), "data": data, "sequence_length": 2048}
    config = SFTConfig.model_validate(settings)
    return int(prepare(config, config.data, cache).meta["sequences"]["train"])


def datasets(rows: Path, tokenizer: Path, cache: Path) -> int:
    """Tokenise as trl does: the prompt and the whole by `apply_chat_template`, and a mask."""
    from datasets import load_dataset
    from transformers import AutoTokenizer

    encoder: Any = AutoTokenizer.from_pretrained(tokenizer)

    def tokenise(row: dict[str, Any]) -> dict[str, Any]:
        told = messages(row)
        prompt = encoder.apply_chat_template(
            told[:-1], add_generation_prompt=True, return_dict=True
        )
        whole = encoder.apply_chat_template(told, return_dict=True)
        ids, before = whole["input_ids"], len(prompt["input_ids"])
        return {"input_ids": ids, "completion_mask": [0] * before + [1] * (len(ids) - before)}

    found = load_dataset("json", data_files=str(rows), split="train", cache_dir=str(cache))
    return len(found.map(tokenise, remove_columns=found.column_names))


def tokenizer_alone(rows: Path, tokenizer: Path, cache: Path) -> int:
    """Encode what `render` wrote, in batches; returns the number of tokens."""
    from transformers import AutoTokenizer

    backend = AutoTokenizer.from_pretrained(tokenizer).backend_tokenizer
    texts = json.loads(rows.with_suffix(".texts").read_text())
    batches = (texts[start : start + 256] for start in range(0, len(texts), 256))
    return sum(len(e.ids) for b in batches for e in backend.encode_batch(b))


def render(rows: Path, tokenizer: Path) -> None:
    """Write the text of each row."""
    from transformers import AutoTokenizer

    apply = AutoTokenizer.from_pretrained(tokenizer).apply_chat_template
    with open(rows) as lines:
        texts = [apply(messages(json.loads(line)), tokenize=False) for line in lines]
    rows.with_suffix(".texts").write_text(json.dumps(texts))


CONTENDERS = {"ours": ours, "datasets": datasets, "tokenizer": tokenizer_alone}


def measure(name: str, folder: Path) -> dict[str, Any]:
    """Seconds, memory and result of a contender in this process."""
    import torch  # noqa: F401
    import transformers  # noqa: F401

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the first has more interrupts
    CONTENDERS[name](folder / "few.jsonl", folder / "tokenizer", folder / f"{name}-few")
    cpu, wall = time.process_time(), time.perf_counter()
    result = CONTENDERS[name](folder / "rows.jsonl", folder / "tokenizer", folder / name)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"cpu_s": round(cpu, 2), "wall_s": round(wall, 1), "gib": round(peak, 2), "rows": result}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        print(json.dumps(measure(options.contenders[0], options.folder)))
        sys.exit()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "few.jsonl", WARM_UP, options.turns)
        write_rows(folder / "rows.jsonl", options.rows, options.turns)
        write_tokenizer(folder / "rows.jsonl", folder / "tokenizer")
        if "tokenizer" in options.contenders:
            render(folder / "few.jsonl", folder / "tokenizer")
            render(folder / "rows.jsonl", folder / "tokenizer")
        env = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"} | QUIET
        for contender in options.contenders:
            command = [sys.executable, "-m", "benchmarks.data", "--folder", name]
            done = subprocess.run(
                [*command, "--contenders", contender], check=True, env=env, stdout=subprocess.PIPE
            )
            found = json.loads(done.stdout.splitlines()[-1])
            rate = round(options.rows / found["cpu_s"])
            print(json.dumps({"contender": contender, **found, "rows_per_s": rate}), flush=True)
