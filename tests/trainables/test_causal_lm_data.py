import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm import corpus as corpus_module
from trainables.causal_lm import data as data_module
from trainables.causal_lm.config import CausalLMConfig, DataConfig
from trainables.causal_lm.corpus import assign_splits, open_corpus
from trainables.causal_lm.data import Dataset, prepare

TEXTS = [f"Line {i} of the story says {i * i} and {'ab' * (i % 7)}.\n" * 3 for i in range(60)]


def config_of(paths: Path, **changes: object) -> CausalLMConfig:
    data = {"source": "files", "paths": str(paths), **changes}
    return CausalLMConfig.model_validate({"vocab_size": 300, "sequence_length": 8, "data": data})


def write_texts(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i, text in enumerate(TEXTS):
        (folder / f"{i:03}.txt").write_text(text)
    return folder / "*.txt"


def decoded(dataset: Dataset, split: Split) -> str:
    """The text of a split, put together again from its overlapping sequences."""
    from tokenizers import Tokenizer

    rows = dataset.sequences(split)
    tokens = [*rows[:, :-1].reshape(-1).tolist(), int(rows[-1, -1])]
    tokenizer: Tokenizer = Tokenizer.from_file(str(dataset.tokenizer_file))
    return str(tokenizer.decode(tokens, skip_special_tokens=False))


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders that were really tokenised."""
    seen: list[Path] = []
    build = data_module._build

    def counting(folder: Path, *args: object) -> None:
        seen.append(folder)
        build(folder, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(data_module, "_build", counting)
    return seen


def test_every_text_is_in_exactly_one_split(tmp_path: Path) -> None:
    dataset = prepare(config_of(write_texts(tmp_path / "in")), tmp_path / "cache")
    texts = {split: decoded(dataset, split) for split in Split}
    whole = [t for text in texts.values() for t in text.split("<|endoftext|>")[:-1]]
    assert len(set(whole)) == len(whole)
    # only what is left of the last sequence of a split may be missing
    assert len(TEXTS) - 3 <= len(whole) <= len(TEXTS)
    assert set(whole) <= set(TEXTS)
    assert dataset.meta["sequences"] == {s: len(dataset.sequences(s)) for s in Split}
    assert dataset.sequences(Split.TRAIN).dtype == np.uint16
    assert dataset.sequences(Split.TRAIN).shape[1] == 9


def test_each_sequence_knows_its_source(tmp_path: Path) -> None:
    dataset = prepare(config_of(write_texts(tmp_path / "in")), tmp_path / "cache")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(dataset.tokenizer_file))
    for split in Split:
        rows, sources = dataset.sequences(split), dataset.sources(split)
        assert len(sources) == len(rows)
        for row, source in zip(rows, sources, strict=True):
            begin = tokenizer.decode(row.tolist(), skip_special_tokens=False).split(
                "<|endoftext|>"
            )[0]
            assert begin in TEXTS[source]


def test_text_comes_from_files_jsonl_or_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"body": t}) for t in TEXTS))
    pq.write_table(pa.table({"body": TEXTS}), tmp_path / "a.parquet")
    (tmp_path / "a.txt").write_text("".join(TEXTS) * 4)
    made = [
        prepare(config_of(tmp_path / name, text_field="body"), tmp_path / "cache")
        for name in ("a.jsonl", "a.parquet", "a.txt")
    ]
    rows, table, plain = (decoded(d, Split.TRAIN) for d in made)
    assert rows == table
    assert all(decoded(made[0], split) for split in Split)
    assert plain.split("<|endoftext|>")[0][:100] in "".join(TEXTS) * 4


def test_the_same_text_and_settings_are_tokenised_once(tmp_path: Path, builds: list[Path]) -> None:
    first = prepare(config_of(write_texts(tmp_path / "in")), tmp_path / "cache")
    moved = prepare(config_of(write_texts(tmp_path / "moved")), tmp_path / "cache")
    assert moved == first
    assert len(builds) == 1
    longer = config_of(tmp_path / "in" / "*.txt").model_copy(update={"sequence_length": 16})
    assert prepare(longer, tmp_path / "cache") != first
    (tmp_path / "in" / "000.txt").write_text("something else")
    assert prepare(config_of(tmp_path / "in" / "*.txt"), tmp_path / "cache") != first
    assert len(builds) == 3


def test_the_optimiser_does_not_enter_the_key(tmp_path: Path, builds: list[Path]) -> None:
    config = config_of(write_texts(tmp_path / "in"))
    prepare(config, tmp_path / "cache")
    other = {"learning_rate": 1.0, "batch_size": 1, "hidden_size": 32, "init_seed": 5}
    prepare(config.model_copy(update=other), tmp_path / "cache")
    assert len(builds) == 1


def test_processes_that_come_at_once_build_once(tmp_path: Path) -> None:
    pattern = write_texts(tmp_path / "in")
    code = (
        "import os, sys; from pathlib import Path; from trainables.causal_lm import data\n"
        "from trainables.causal_lm.config import CausalLMConfig\n"
        "build = data._build\n"
        "def counting(*a):\n"
        "    Path(sys.argv[2], f'built_{os.getpid()}').touch(); build(*a)\n"
        "data._build = counting\n"
        "config = CausalLMConfig.model_validate_json(sys.argv[1])\n"
        "print(data.prepare(config, Path(sys.argv[2]) / 'cache').key)"
    )
    command = [sys.executable, "-c", code, config_of(pattern).model_dump_json(), str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    keys = [process.communicate(timeout=60)[0].strip() for process in running]
    assert len(list(tmp_path.glob("built_*"))) == 1
    assert len(set(keys)) == 1
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [keys[0], f"{keys[0]}.lock"]


def test_what_a_dead_builder_left_is_built_again(tmp_path: Path) -> None:
    config = config_of(write_texts(tmp_path / "in"))
    key = prepare(config, tmp_path / "cache").key
    os.rename(tmp_path / "cache" / key, tmp_path / "cache" / f"{key}.building")
    (tmp_path / "cache" / f"{key}.building" / "train.npy").write_bytes(b"half")
    assert len(prepare(config, tmp_path / "cache").sequences(Split.TRAIN)) > 1


def test_building_is_deterministic(tmp_path: Path) -> None:
    config = config_of(write_texts(tmp_path / "in"))
    a, b = (prepare(config, tmp_path / name) for name in ("a", "b"))
    files = sorted(p.name for p in a.folder.iterdir())
    arrays = [f"{split}.{kind}" for split in Split for kind in ("npy", "sources.npy")]
    assert files == sorted([*arrays, "meta.json", "tokenizer.json"])
    assert all((a.folder / f).read_bytes() == (b.folder / f).read_bytes() for f in files)


def test_a_known_key_needs_no_text_and_a_changed_text_is_refused(tmp_path: Path) -> None:
    config = config_of(write_texts(tmp_path / "in"))
    made = prepare(config, tmp_path / "cache")
    gone = config_of(tmp_path / "gone" / "*")
    assert prepare(gone, tmp_path / "cache", made.key) == made
    (tmp_path / "in" / "000.txt").write_text("something else")
    with pytest.raises(UserError, match="not what the model was trained on"):
        prepare(config, tmp_path / "other_cache", made.key)


def test_large_files_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "LARGE_FILE", 10)
    path = tmp_path / "a.txt"
    path.write_text("x" * 100)
    data = DataConfig(source="files", paths=[str(path)])
    first = open_corpus(data, tmp_path).fingerprint()
    digest = next((tmp_path / "digests").iterdir())
    digest.write_text("remembered")
    assert open_corpus(data, tmp_path).fingerprint() != first
    path.write_text("x" * 101)
    assert len(list((tmp_path / "digests").iterdir())) == 1
    open_corpus(data, tmp_path).fingerprint()
    assert len(list((tmp_path / "digests").iterdir())) == 2


@pytest.mark.parametrize("count", [3, 4, 10, 40, 1000])
def test_no_split_is_empty_and_none_depends_on_order(count: int) -> None:
    units = [corpus_module._digest([str(i)]) for i in range(count)]
    splits = assign_splits(units)
    assert set(splits.values()) == set(Split)
    assert assign_splits(reversed(units * 2)) == splits
    held_out = sum(s is not Split.TRAIN for s in splits.values())
    assert held_out <= max(2, 0.14 * count)


def test_the_standard_library_is_read_up_to_the_limit(tmp_path: Path) -> None:
    found = open_corpus(DataConfig(max_bytes=200_000), tmp_path)
    assert found == open_corpus(DataConfig(max_bytes=200_000), tmp_path)
    assert 100_000 < sum(f.stat().st_size for f in found.files) <= 200_000
    more = open_corpus(DataConfig(max_bytes=400_000), tmp_path)
    assert more.files[: len(found.files)] == found.files
    skipped = {"site-packages", "test", "idlelib"}
    assert not any(skipped & set(f.parts[-3:]) for f in more.files)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "short", "1 different documents cannot be split in three"),
        ("a.jsonl", '{"text": "a"}\n{"txt": "b"}', "a.jsonl:2: no text under 'text'"),
        ("a.jsonl", "{", "a.jsonl:1: not a JSON object"),
        ("a.jsonl", "".join(f'{{"text": "{i}"}}\n' for i in range(3)), "smaller sequence_length"),
        ("b.txt", "x", "no file matches"),
    ],
)
def test_text_that_cannot_be_used_is_refused(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        prepare(config_of(tmp_path / "a.*"), tmp_path / "cache")


def test_a_missing_column_names_those_there_are(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": TEXTS}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"no column 'text' .* it has body"):
        prepare(config_of(tmp_path / "a.parquet"), tmp_path / "cache")


def write_parquet(path: Path) -> Path:
    """Four row groups of 20 texts, the third of them damaged on the disk."""
    texts = [f"{t} {i}" for i, t in enumerate(TEXTS + TEXTS[:20])]
    pq.write_table(
        pa.table({"text": texts}),
        path,
        row_group_size=20,
        use_dictionary=False,
        write_page_checksum=True,
    )
    meta = pq.read_metadata(path).row_group(2).column(0)
    data = bytearray(path.read_bytes())
    start = meta.data_page_offset + meta.total_compressed_size // 2  # behind the page's header
    data[start : start + 40] = bytes(40)
    path.write_bytes(bytes(data))
    return path


def write_lines(path: Path) -> Path:
    lines = [json.dumps({"text": text}).encode() for text in TEXTS]
    lines[7], lines[9], lines[11] = b"{", b'{"text": "\xff\xfe"}', b'{"txt": 1}'
    path.write_bytes(b"\n".join(lines))
    return path


BAD = [
    (write_parquet, "data.parquet", [r"data\.parquet: row group 2: cannot be read"]),
    (
        write_lines,
        "data.jsonl",
        [
            rf"data\.jsonl:{line}: {why}"
            for line, why in ((8, "not a"), (10, "not a"), (12, "no te"))
        ],
    ),
    (
        lambda path: (path.write_bytes(b"PAR1 no"), write_texts(path.parent / "more"), path)[2],
        "data.parquet",
        [r"data\.parquet: not a Parquet file"],
    ),
]


@pytest.mark.parametrize(("write", "name", "said"), BAD, ids=["row group", "lines", "file"])
def test_bad_data_is_named_and_skipped_or_refused(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    write: Callable[[Path], Path],
    name: str,
    said: list[str],
) -> None:
    write(tmp_path / name)
    paths = tmp_path / "**"
    with pytest.raises(UserError, match=f"{said[0]}.*on_bad_data: skip"):
        prepare(config_of(paths), tmp_path / "cache")
    with caplog.at_level(logging.WARNING):
        dataset = prepare(config_of(paths, on_bad_data="skip"), tmp_path / "cache")
    assert len(dataset.meta["skipped"]) == len(said)
    for line, expected in zip(dataset.meta["skipped"], said, strict=True):
        assert re.search(expected, line)
        assert line in caplog.text
    assert dataset.meta["sequences"]["train"] > 0
    with pytest.raises(UserError):  # what was built by skipping is not there for who wants it whole
        prepare(config_of(paths), tmp_path / "cache")
