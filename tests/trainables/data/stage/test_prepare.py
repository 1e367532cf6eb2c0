"""A data stage: cleaned, split once, the same after a kill."""

from __future__ import annotations

import json
import os
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from search_spaces.errors import UserError
from search_spaces.pipeline.stages import DataStage
from tests.waiting import wait_for
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.data.stage.duplicates import digest
from trainables.data.stage.files import data_problem
from trainables.data.stage.prepare import prepare
from trainables.data.text.config import DataConfig
from trainables.data.text.dataset import prepare as prepare_tokens

SPLITS = ("train", "selection", "test")
SLOW = """
import os
import time

FOLDER = os.path.dirname(__file__)

def keep(text):
    if text.startswith("Another") and not os.path.exists(FOLDER + "/go"):
        with open(FOLDER + "/pid.new", "w") as file:
            file.write(str(os.getpid()))
        os.rename(FOLDER + "/pid.new", FOLDER + "/pid")
        time.sleep(600)
    return True
"""
"""Waits in the second file, unless a file is there."""


def stage(**keys: Any) -> DataStage:
    given = {"name": "data", "kind": "data", "workers": 1, "near_duplicates": None}
    return DataStage.model_validate({**given, **keys})


def rows(folder: Path, kind: str, split: str) -> list[dict[str, Any]]:
    lines = (folder / kind / f"{split}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def write_stories(file: Path, texts: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def content(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def test_stories_are_split_so_that_no_stage_trains_on_what_another_holds_out(
    tmp_path: Path,
) -> None:
    prepare(stage(source="stories", stories=600), tmp_path, tmp_path / "out")
    texts = {s: {digest(r["text"]) for r in rows(tmp_path / "out", "text", s)} for s in SPLITS}
    for split in SPLITS:
        asked = rows(tmp_path / "out", "instructions", split)
        assert {digest(row["answer"]) for row in asked} == texts[split]
        words = [row["words"].split() for row in asked]
        for row, three in zip(asked, words, strict=True):
            assert len(three) == 3
            assert all(word in row["answer"] and word in row["question"] for word in three)
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["selection"]
    assert len(texts["train"]) > 450


def test_sums_are_text_and_questions_of_one_split(tmp_path: Path) -> None:
    counts = prepare(stage(source="arithmetic", sums=300, digits=2), tmp_path, tmp_path / "out")
    assert sum(split["texts"] for split in counts["splits"].values()) == 300
    for split in SPLITS:
        texts = [row["text"] for row in rows(tmp_path / "out", "text", split)]
        asked = rows(tmp_path / "out", "questions", split)
        assert [row["question"] + row["answer"] for row in asked] == texts
        for row in asked:
            one, other = row["question"].removesuffix("=").split("+")
            assert int(row["answer"]) == int(one) + int(other) != int(row["rejected"])
    held_out = []
    for seed in (0, 1):  # of the same hundred sums
        made = stage(source="arithmetic", sums=100, digits=1, seed=seed)
        prepare(made, tmp_path, tmp_path / str(seed))
        held_out.append({row["text"] for row in rows(tmp_path / str(seed), "text", "test")})
    assert held_out[0] != held_out[1]


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"source": "files", "paths": ["a"], "stories": 100}, "stories"),
        ({"source": "stories", "sums": 100}, "arithmetic"),
        ({"source": "files", "paths": ["a"], "seed": 1}, "stories or arithmetic"),
    ],
)
def test_a_key_of_another_source_is_refused(given: dict[str, Any], key: str) -> None:
    with pytest.raises(ValidationError, match=f"has an effect only with source: {key}"):
        stage(**given)


def test_the_files_of_tinystories_keep_their_splits(tmp_path: Path) -> None:
    train = [f"A story of the number {n} and of its friend." for n in range(300)]
    valid = [f"Another tale, number {n}, for later." for n in range(100)]
    write_stories(tmp_path / "train" / "stories.jsonl", [*train, valid[0]])
    write_stories(tmp_path / "valid" / "stories.jsonl", valid)
    found = prepare(stage(source="files", paths=["**/stories.jsonl"]), tmp_path, tmp_path / "out")
    split = {s: [row["text"] for row in rows(tmp_path / "out", "text", s)] for s in SPLITS}
    assert sorted(split["train"]) == sorted(train)  # without the one that is held out
    assert sorted([*split["selection"], *split["test"]]) == sorted(valid)
    assert split["selection"]
    assert split["test"]
    assert found["left out"] == {"exact duplicates": 1}


def test_texts_are_cleaned_by_length_filter_and_similarity_in_several_processes(
    tmp_path: Path,
) -> None:
    words = [" ".join(f"w{n}x{i}" for i in range(60)) for n in range(200)]
    write_stories(tmp_path / "a.jsonl", [*words, "short", words[3] + " end", "x " * 400])
    write_stories(tmp_path / "b.jsonl", [words[0].upper(), "nein " * 20])
    (tmp_path / "language.py").write_text("def english(text):\n    return 'nein' not in text\n")
    found = prepare(
        stage(
            source="files",
            paths=["*.jsonl"],
            min_chars=10,
            max_chars=700,
            near_duplicates=0.8,
            keep_if="language.py:english",
            workers=2,
        ),
        tmp_path,
        tmp_path / "out",
    )
    assert found["left out"] == {
        "too short": 1,
        "too long": 1,
        "by keep_if": 1,
        "exact duplicates": 1,
        "near duplicates": 1,
    }
    assert sum(split["texts"] for split in found["splits"].values()) == 200


def test_a_missing_file_and_a_missing_column_are_found_before_anything_starts(
    tmp_path: Path,
) -> None:
    write_stories(tmp_path / "a.jsonl", ["one"])
    wrong = stage(source="files", paths=["a.jsonl", "b.jsonl"], text_field="tekst")
    assert list(data_problem(wrong, tmp_path)) == [
        (("paths", 1), f"no file matches b.jsonl (from {tmp_path})"),
        (
            ("text_field",),
            f"{tmp_path}/a.jsonl: no column 'tekst' (did you mean 'text'?); set its name beside the"
            " path",
        ),
    ]


def test_too_little_text_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    write_stories(tmp_path / "a.jsonl", ["one"])
    with pytest.raises(UserError, match="split has no text"):
        prepare(stage(source="files", paths=["a.jsonl"]), tmp_path, tmp_path / "out")


def test_the_tokenizer_and_the_token_files_are_those_that_a_model_reads(tmp_path: Path) -> None:
    made = stage(source="stories", stories=400, tokenizer={"vocab_size": 300}, pack=32)
    cache = tmp_path / "cache"
    found = prepare(made, tmp_path, tmp_path / "out", cache)
    built = {folder.name for folder in cache.iterdir() if folder.is_dir()}
    config = CausalLMConfig(
        tokenizer=str(tmp_path / "out" / "tokenizer"),
        sequence_length=32,
        data=DataConfig(
            source="files", paths=[f"{tmp_path}/out/text/*.jsonl"], splits="file_names"
        ),
    )
    dataset = prepare_tokens(config, cache)
    assert {dataset.key} == built  # nothing was packed again
    assert dataset.meta["vocab_size"] == 300
    for split in SPLITS:
        tokens = found["splits"][split]["tokens"]
        assert tokens == 32 * len(dataset.sequences(Split(split)))
        assert tokens < found["splits"][split]["characters"]
    again = stage(source="stories", stories=400, tokenizer=str(tmp_path / "out" / "tokenizer"))
    counted = prepare(again, tmp_path, tmp_path / "taken", cache)
    files = [
        folder / "tokenizer" / "tokenizer.json" for folder in (tmp_path / "out", tmp_path / "taken")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert 0 <= counted["splits"]["train"]["tokens"] - found["splits"]["train"]["tokens"] <= 32


def test_what_is_not_in_the_cache_of_the_hub_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    absent = "hf://datasets/nobody/nothing-of-this-name/*.parquet"
    wrong = stage(source="files", paths=[absent], tokenizer="nobody/nothing-of-this-name")
    reason = "not found in the local cache of the hub (HF_HOME), and the hub cannot be reached"
    assert list(data_problem(wrong, tmp_path)) == [
        (("paths", 0), f"data set nobody/nothing-of-this-name: {reason}")
    ]
    alone = stage(source="stories", tokenizer="nobody/nothing-of-this-name")
    assert list(data_problem(alone, tmp_path)) == [
        (("tokenizer",), f"nobody/nothing-of-this-name: {reason}")
    ]
    short = stage(source="files", paths=["hf://datasets/nobody"])
    ((_, line),) = data_problem(short, tmp_path)
    assert line.startswith("hf://datasets/nobody: must be hf://datasets/OWNER/NAME@REVISION/GLOB")


def test_a_process_of_the_pool_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """Also when that is killed; a part that is complete is not made again."""
    write_stories(tmp_path / "a.jsonl", [f"The story of number {n}." for n in range(300)])
    write_stories(tmp_path / "b.jsonl", [f"Another one of number {n}." for n in range(300)])
    (tmp_path / "slow.py").write_text(SLOW)
    keys = {"source": "files", "paths": ["*.jsonl"], "keep_if": "slow.py:keep", "workers": 2}
    process = get_context("forkserver").Process(
        target=prepare, args=(stage(**keys), tmp_path, tmp_path / "out")
    )
    process.start()
    first = tmp_path / "out" / "parts" / "00000.json"
    pids = tmp_path / "pid"
    wait_for(lambda: first.exists() and pids.exists())
    process.kill()
    process.join()
    worker = int(pids.read_text())
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    (tmp_path / "go").touch()
    made = first.stat().st_mtime_ns
    files = tmp_path / "out" / "parts" / "00000.jsonl"
    os.link(files, tmp_path / "kept")
    found = prepare(stage(**keys), tmp_path, tmp_path / "out")
    assert sum(split["texts"] for split in found["splits"].values()) == 600
    assert (tmp_path / "kept").stat().st_mtime_ns <= made
    prepare(stage(**keys), tmp_path, tmp_path / "whole")
    assert content(tmp_path / "out") == content(tmp_path / "whole")
