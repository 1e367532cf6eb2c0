"""A data stage: cleaned, split once, the same after a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from search_spaces.errors import UserError
from search_spaces.pipeline.stages import DataStage
from trainables.data.duplicates import digest
from trainables.data.files import data_problem
from trainables.data.prepare import prepare

SPLITS = ("train", "selection", "test")


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
        assert all(word in row["answer"] for row in asked for word in row["words"])
        assert all(word in row["question"] for row in asked for word in row["words"])
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["selection"]
    assert len(texts["train"]) > 450


def test_a_part_that_a_killed_process_left_complete_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(source="stories", stories=4100)
    prepare(made, tmp_path, tmp_path / "whole")
    from trainables.data import prepare as module

    real = module.make_stories
    blocks: list[int] = []

    def killed_in_the_second(seed: int, block: int, count: int) -> Any:
        if block == 1:
            raise KeyboardInterrupt
        return real(seed, block, count)

    def counted(seed: int, block: int, count: int) -> Any:
        blocks.append(block)
        return real(seed, block, count)

    monkeypatch.setattr(module, "make_stories", killed_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        prepare(made, tmp_path, tmp_path / "again")
    done = {f.name for f in (tmp_path / "again" / "parts").glob("*.json")}
    assert done == {"00000.json"}
    monkeypatch.setattr(module, "make_stories", counted)
    prepare(made, tmp_path, tmp_path / "again")
    assert blocks == [1, 2]
    assert content(tmp_path / "again") == content(tmp_path / "whole")


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
            f"{tmp_path}/a.jsonl: no column 'tekst' (did you mean 'text'?)",
        ),
    ]


def test_too_little_text_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    write_stories(tmp_path / "a.jsonl", ["one"])
    with pytest.raises(UserError, match="split has no text"):
        prepare(stage(source="files", paths=["a.jsonl"]), tmp_path, tmp_path / "out")
