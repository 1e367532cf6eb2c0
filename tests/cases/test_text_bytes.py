"""Bytes that are not the text that a reader takes them for are named, and not trained on."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from search_spaces.errors import UserError
from trainables.data.bad_rows import BadRow
from trainables.data.conversations.rows import Columns, Conversation, read_rows
from trainables.data.text.config import DataConfig
from trainables.data.text.corpus import texts_in

TEXT = "red blue green\n" * 20
FILES = {
    "gzip": gzip.compress(TEXT.encode()),
    "UTF-16": TEXT.encode("utf-16"),
    "NUL": TEXT.encode("utf-16-le"),
    "PDF": b"%PDF-1.7\n" + TEXT.encode(),
    "byte 0xe9": f"{TEXT} café".encode("latin-1"),
    "byte 0x89": b"\x89PNG\r\n" + np.random.default_rng(0).bytes(1000),
}


def read(file: Path, *, whole: bool = False) -> list[str | BadRow]:
    return list(texts_in(file, DataConfig(source="files", paths=[str(file)]), whole=whole))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("what", FILES)
def test_bytes_that_are_no_text_are_named(what: str, whole: bool, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(FILES[what])
    (found,) = read(file, whole=whole)
    assert isinstance(found, BadRow)
    assert what in found.problem


def test_text_is_read_without_its_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text(TEXT, encoding="utf-8-sig")
    assert read(file) == read(file, whole=True) == [TEXT]


@pytest.mark.parametrize("ending", [".json", ".csv", ".tsv"])
def test_tables_are_no_text_unless_they_are_said_to_be(ending: str, tmp_path: Path) -> None:
    file = (tmp_path / "a").with_suffix(ending)
    file.write_text(TEXT)
    with pytest.raises(UserError, match=ending):
        read(file)
    data = DataConfig(source="files", paths=[str(file)], format="text")
    assert list(texts_in(file, data, whole=True)) == [TEXT]


@pytest.mark.parametrize("half", [b"\\ud83d", b"\\uDC00", b"\xed\xa0\xbd"])
def test_half_of_a_character_is_a_bad_row(half: bytes, tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    good = {"text": "smile \ud83d\ude00", "question": "q", "answer": "\ud83d\ude00"}
    bad = json.dumps({"text": "HALF", "question": "q", "answer": "HALF"}).encode()
    file.write_bytes(json.dumps(good).encode() + b"\n" + bad.replace(b"HALF", half) + b"\n")
    first, second = read(file)
    assert first == "smile \U0001f600"
    assert isinstance(second, BadRow)
    rows = list(read_rows([file], Columns("question", "answer")))
    assert [type(row) for row in rows] == [Conversation, BadRow]
    assert "a.jsonl:2" in second.problem
