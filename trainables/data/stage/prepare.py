"""Makes the data set of a data stage: cleans each part in a process of its own, then merges them.

    <folder>/text/{train,selection,test}.jsonl            {"text"}
    <folder>/instructions/{train,selection,test}.jsonl    stories: {"question", "answer", "words"}
    <folder>/questions/{train,selection,test}.jsonl       sums: {"question", "answer", "rejected"}
    <folder>/tokenizer/                                   with `tokenizer`, as of transformers
    <folder>/statistics.json

A text, and the instruction or question that it answers, are in the split of the digest of the text,
so that no stage trains on what another one is evaluated on. A part that is complete is not made
again.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import numpy as np

from results.checkpoints.streaming_hash import hash_file
from results.storage.atomic import write_atomic
from search_spaces.errors import UserError
from search_spaces.pipeline.stages import DataStage
from trainables.base import Split
from trainables.data.bad_rows import BadRow
from trainables.data.corpora.generated import generate_rows
from trainables.data.corpora.stories import make_stories
from trainables.data.splits import split_by_digest, split_of
from trainables.data.stage.duplicates import NearDuplicates, digest, signature
from trainables.data.stage.files import input_files, load_filter, outputs
from trainables.data.text.config import DataConfig
from trainables.data.text.corpus import texts_in

VERSION = 3
"""Version of the data; raise it with any change of code that changes them."""
BLOCK = 2000
"""Stories of a part."""


@dataclass(frozen=True)
class DataPart:
    """A file, or a block of stories: what one process cleans."""

    number: int
    file: Path | None
    stage: DataStage
    directory: Path
    target: Path


def prepare(
    stage: DataStage, directory: Path, folder: Path, cache: Path | None = None
) -> dict[str, Any]:
    """Make the data set in a folder, or go on with it; returns its statistics.

    Args:
        stage: of the pipeline.
        directory: of relative paths.
        folder: of the data set.
        cache: of the models that are trained on it; default: beside the folder.

    Raises:
        UserError: a file cannot be read, or too little text is left.
    """
    parts = folder / "parts"
    parts.mkdir(parents=True, exist_ok=True)
    todo = _parts(stage, directory, parts)
    count = min(stage.workers or os.cpu_count() or 1, len(todo))
    if count > 1:
        with ProcessPoolExecutor(count, get_context("spawn"), _end_with_parent) as pool:
            removed = list(pool.map(clean, todo))
    else:
        removed = [clean(part) for part in todo]
    counts = sum(map(Counter, removed), Counter[str]())
    statistics = _merge(stage, todo, folder, counts)
    if stage.tokenizer is not None:
        from trainables.data.stage.tokens import tokenize

        tokens = tokenize(stage, directory, folder, cache or folder.with_name("cache"))
        for name, found in statistics["splits"].items():
            found["tokens"] = tokens[name]
    statistics["sha256"] = _digests(stage, todo, folder)
    write_atomic(folder / "statistics.json", json.dumps(statistics, indent=1).encode())
    shutil.rmtree(parts)
    return statistics


def _end_with_parent() -> None:
    """End this process when the one that started it is killed: it would wait for work for ever."""
    parent = parent_process()
    assert parent is not None, "called in the processes of a pool"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _parts(stage: DataStage, directory: Path, target: Path) -> list[DataPart]:
    sources: Sequence[Path | None]
    if stage.source == "files":
        sources = input_files(stage.paths, directory)
    else:
        sources = [None] * (-(-stage.stories // BLOCK) if stage.source == "stories" else 1)
    return [DataPart(n, f, stage, directory, target / f"{n:05d}") for n, f in enumerate(sources)]


def clean(part: DataPart) -> dict[str, int]:
    """Write the texts of a part that are kept, `.jsonl`, and their signatures, `.npy`.

    Returns:
        The number of texts that were left out, by the reason.
    """
    done = part.target.with_suffix(".json")
    if done.exists():
        removed: dict[str, int] = json.loads(done.read_text())
        return removed
    counts, marks, lines = Counter[str](), [], []
    why = _reason(part)
    for row in _rows(part):
        if (reason := why(row["text"])) is not None:
            counts[reason] += 1
            continue
        lines.append(json.dumps(row, ensure_ascii=False))
        if part.stage.near_duplicates is not None:
            marks.append(signature(row["text"]))
    part.target.with_suffix(".jsonl").write_text("\n".join(lines) + ("\n" if lines else ""))
    np.save(part.target.with_suffix(".npy"), np.array(marks, dtype=np.uint32))
    write_atomic(done, json.dumps(counts).encode())
    return dict(counts)


def _reason(part: DataPart) -> Callable[[str], str | None]:
    """Why a text is left out; None if it is kept."""
    stage = part.stage
    keep: Any = load_filter(stage.keep_if, part.directory) if stage.keep_if else None

    def why(text: str) -> str | None:
        if len(text) < stage.min_chars:
            return "too short"
        if stage.max_chars is not None and len(text) > stage.max_chars:
            return "too long"
        return None if keep is None or keep(text) else "by keep_if"

    return why


def _rows(part: DataPart) -> Iterator[dict[str, Any]]:
    stage = part.stage
    if part.file is not None:
        data = DataConfig(source="files", paths=[str(part.file)], text_field=stage.text_field)
        for text in texts_in(part.file, data, whole=True):
            if isinstance(text, BadRow):
                raise UserError(text.problem)
            yield {"text": text}
    elif stage.source == "stories":
        count = min(BLOCK, stage.stories - part.number * BLOCK)
        for story in make_stories(stage.seed, part.number, count):
            about = {"question": story.instruction, "answer": story.text}
            yield {"text": story.text, **about, "words": " ".join(story.words)}
    else:
        for asked, right, wrong in generate_rows(
            "arithmetic", stage.digits, stage.sums, stage.seed
        ):
            yield {"text": asked + right, "question": asked, "answer": right, "rejected": wrong}


def _merge(
    stage: DataStage, parts: list[DataPart], folder: Path, counts: Counter[str]
) -> dict[str, Any]:
    """Write each text once, to the file of its split."""
    near = NearDuplicates(stage.near_duplicates or 1.0)
    seen: set[str] = set()
    splits: dict[str, Counter[str]] = {split.value: Counter() for split in Split}
    named = {split_of(part.file) for part in parts if part.file}
    with ExitStack() as stack:
        files = {}
        for kind, split in itertools.product(outputs(stage), Split):
            (folder / kind).mkdir(exist_ok=True)
            path = folder / kind / f"{split}.jsonl"
            files[kind, split] = stack.enter_context(open(path, "w", encoding="utf-8"))
        for part, row, mark in _read_parts(parts):
            key = digest(row["text"])
            if key in seen:
                counts["exact duplicates"] += 1
                continue
            seen.add(key)
            if stage.near_duplicates is not None and not near.add(mark):
                counts["near duplicates"] += 1
                continue
            unit = f"{stage.seed} {row['text']}" if stage.source == "arithmetic" else row["text"]
            # there are few sums, so each seed splits them in its own way
            split = _split(part.file, digest(unit), named)
            splits[split.value].update(texts=1, characters=len(row["text"]))
            for kind, columns in outputs(stage).items():
                content = {name: row[name] for name in columns}
                files[kind, split].write(json.dumps(content, ensure_ascii=False) + "\n")
    for name, found in splits.items():
        if not found["texts"]:
            raise UserError(f"the {name} split has no text; give more, or fewer filters")
    return {"splits": {k: dict(v) for k, v in splits.items()}, "left out": dict(counts)}


def _digests(stage: DataStage, parts: list[DataPart], folder: Path) -> dict[str, str]:
    """SHA-256 of each file that was read, by its path, and written, by its path in the folder."""
    files = {str(part.file): part.file for part in parts if part.file}
    names = (f"{kind}/{split}.jsonl" for kind in outputs(stage) for split in Split)
    files |= {name: folder / name for name in names}
    return {name: hash_file(file).sha256 for name, file in files.items()}


def _read_parts(parts: list[DataPart]) -> Iterator[tuple[DataPart, dict[str, Any], Any]]:
    for part in parts:
        marks = np.load(part.target.with_suffix(".npy"))
        with open(part.target.with_suffix(".jsonl"), encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                yield part, json.loads(line), marks[number] if len(marks) else None


def _split(file: Path | None, key: str, named: set[Split | None]) -> Split:
    """The split of the file's name; what the names leave open is decided by the digest."""
    own = split_of(file) if file is not None else None
    if own is None:
        return split_by_digest(key)
    if own is Split.SELECTION and Split.TEST not in named:  # half of it
        return Split.TEST if int(key[-1], 16) % 2 else Split.SELECTION
    return own
