import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from search_spaces.errors import UserError
from trainables.base import Split
from trainables.causal_lm.config import CausalLMConfig
from trainables.data import shared_folder
from trainables.data.conversations.chat import open_chat
from trainables.data.splits import HELD_OUT
from trainables.data.text.dataset import Dataset, prepare
from trainables.data.tokenizer import END, Encoder, encoder_of, train_bpe

TEXTS = [f"Line {i} of the story says {i * i} and {'ab' * (i % 7)}.\n" * 3 for i in range(60)]


def config_of(paths: Path, **changes: object) -> CausalLMConfig:
    text = {"source": "files", "paths": str(paths), **changes}
    return CausalLMConfig.model_validate({"vocab_size": 300, "sequence_length": 8, "data": text})


def write_texts(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for i, text in enumerate(TEXTS):
        (folder / f"{i:03}.txt").write_text(text)
    return folder / "*.txt"


def decoded(dataset: Dataset, split: Split, file: Path | None = None) -> str:
    """The text of a split, joined from its overlapping sequences; `file` has the tokenizer."""
    rows = dataset.sequences(split)
    tokens = [*rows[:, :-1].reshape(-1).tolist(), int(rows[-1, -1])]
    tokenizer: Tokenizer = Tokenizer.from_file(str(file or dataset.tokenizer_file))
    return str(tokenizer.decode(tokens, skip_special_tokens=False))


@pytest.fixture
def count_builds(caplog: pytest.LogCaptureFixture) -> Callable[[], int]:
    """How often text was tokenised so far."""
    caplog.set_level(logging.INFO, shared_folder.__name__)
    return lambda: caplog.text.count("preparing data in")


def test_prepare_puts_each_text_in_one_split(tmp_path: Path) -> None:
    dataset = prepare(config_of(write_texts(tmp_path / "in")), tmp_path / "cache")
    texts = {split: decoded(dataset, split) for split in Split}
    whole = [t for text in texts.values() for t in text.split(END)[:-1]]
    assert len(set(whole)) == len(whole)
    # only what is left of the last sequence of a split may be missing
    assert len(TEXTS) - 3 <= len(whole) <= len(TEXTS)
    assert set(whole) <= set(TEXTS)
    assert dataset.sequences(Split.TRAIN).dtype == np.uint16
    assert dataset.sequences(Split.TRAIN).shape[1] == 9
    tokenizer = Tokenizer.from_file(str(dataset.tokenizer_file))
    for split in Split:
        rows, sources = dataset.sequences(split), dataset.sources(split)
        assert len(sources) == len(rows) == dataset.meta["sequences"][split]
        for row, source in zip(rows, sources, strict=True):
            text = tokenizer.decode(row.tolist(), skip_special_tokens=False)
            assert text.split(END)[0] in TEXTS[source]
        if split is Split.TRAIN:
            assert dataset.bytes(split) is None
        else:  # all of it is ASCII
            targets = [tokenizer.decode(row[1:].tolist()) for row in rows]
            assert [len(text) for text in targets] == list(dataset.bytes(split))


@pytest.mark.parametrize("kind", ["bytes", "words", "unigram"])
def test_sizes_of_tokens_add_up_to_the_bytes_of_a_text(kind: str) -> None:
    text = "  Día \u00a0 \u4f60\u597d, e\u0301 \U0001f600\U0001f600!  "
    if kind == "bytes":
        encoder = train_bpe([text], 260)
    elif kind == "words":
        words = Tokenizer(models.WordLevel({"?": 0, "dia": 1, ",": 2}, unk_token="?"))
        words.normalizer = normalizers.BertNormalizer(strip_accents=True)
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        encoder = Encoder(words, 0)
    else:
        pieces = [("?", 0.0), ("\u2581", -1.0), ("D", -2.0), ("\u4f60\u597d", -2.0)]
        unigram = Tokenizer(models.Unigram(pieces, unk_id=0))
        unigram.pre_tokenizer = pre_tokenizers.Metaspace()
        encoder = Encoder(unigram, 0)
    ((ids, sizes),) = encoder.encode([text], measured=True)
    assert [ids] == [ids for ids, _ in encoder.encode([text])]
    assert len(sizes) == len(ids)
    assert sizes.min() >= 0
    assert sizes.sum() == len(text.encode())


@pytest.mark.parametrize("begins", [True, False])
def test_texts_begin_as_their_pretrained_tokenizer_begins_them(
    begins: bool, tmp_path: Path
) -> None:
    backend = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "a": 2, "b": 3}, unk_token="b"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    if begins:
        single = {"single": "<s> $A", "special_tokens": [("<s>", 0)]}
        backend.post_processor = processors.TemplateProcessing(**single)
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    encoder = encoder_of(fast, "fast")
    texts = ["a b a", "b"]
    found = [*encoder.encode(texts, measured=True)]
    assert [ids for ids, _ in found] == [[*ids, 1] for ids in fast(texts)["input_ids"]]
    assert [int(sizes.sum()) for _, sizes in found] == [5, 1]
    fast.save_pretrained(tmp_path)
    rendered = open_chat(str(tmp_path)).render([{"role": "assistant", "content": "a"}])
    assert not isinstance(rendered, str)
    assert rendered.text.startswith("<s>") is begins


def test_prepare_reads_text_jsonl_and_parquet(tmp_path: Path) -> None:
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
    assert plain.split(END)[0][:100] in "".join(TEXTS) * 4


def test_json_lines_that_were_read_as_text_become_rows_by_another_ending(tmp_path: Path) -> None:
    lines = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS)
    (tmp_path / "a.txt").write_text(lines)
    text = prepare(config_of(tmp_path / "a.txt"), tmp_path / "cache")
    (tmp_path / "a.txt").rename(tmp_path / "a.jsonl")
    rows = prepare(config_of(tmp_path / "a.jsonl"), tmp_path / "cache")
    found = [decoded(dataset, Split.TRAIN) for dataset in (text, rows)]
    assert ['{"text"' in each for each in found] == [True, False]


def test_prepare_tokenises_the_same_text_and_settings_once(
    tmp_path: Path, count_builds: Callable[[], int]
) -> None:
    first = prepare(config_of(write_texts(tmp_path / "in")), tmp_path / "cache")
    moved = prepare(config_of(write_texts(tmp_path / "moved")), tmp_path / "cache")
    other = {"learning_rate": 1.0, "batch_size": 1, "hidden_size": 32, "init_seed": 5}
    config = config_of(tmp_path / "in" / "*.txt")
    assert moved == first == prepare(config.model_copy(update=other), tmp_path / "cache")
    assert count_builds() == 1
    longer = config_of(tmp_path / "in" / "*.txt").model_copy(update={"sequence_length": 16})
    assert prepare(longer, tmp_path / "cache") != first
    (tmp_path / "in" / "000.txt").write_text("something else")
    assert prepare(config_of(tmp_path / "in" / "*.txt"), tmp_path / "cache") != first
    assert count_builds() == 3


def test_concurrent_processes_build_once(tmp_path: Path) -> None:
    pattern = write_texts(tmp_path / "in")
    code = (
        "import logging, sys; from pathlib import Path\n"
        "from trainables.causal_lm.config import CausalLMConfig\n"
        "from trainables.data.text.dataset import prepare\n"
        "logging.basicConfig(level='INFO', stream=sys.stdout, format='%(message)s')\n"
        "given = CausalLMConfig.model_validate_json(sys.argv[1])\n"
        "print(prepare(given, Path(sys.argv[2])).key)"
    )
    given = [config_of(pattern).model_dump_json(), str(tmp_path / "cache")]
    command = [sys.executable, "-c", code, *given]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [process.communicate(timeout=60)[0] for process in running]
    assert "".join(printed).count("preparing data in") == 1
    (key,) = {lines.split()[-1] for lines in printed}
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [key, f"{key}.lock"]


def test_prepare_replaces_what_a_dead_process_left(tmp_path: Path) -> None:
    config = config_of(write_texts(tmp_path / "in"))
    key = prepare(config, tmp_path / "cache").key
    os.rename(tmp_path / "cache" / key, tmp_path / "cache" / f"{key}.building")
    (tmp_path / "cache" / f"{key}.building" / "train.npy").write_bytes(b"half")
    assert len(prepare(config, tmp_path / "cache").sequences(Split.TRAIN)) > 1


def test_prepare_is_deterministic(tmp_path: Path) -> None:
    config = config_of(write_texts(tmp_path / "in"))
    a, b = (prepare(config, tmp_path / name) for name in ("a", "b"))
    files = sorted(p.name for p in a.folder.iterdir())
    arrays = [f"{split}.{kind}" for split in Split for kind in ("npy", "sources.npy")]
    arrays += ["selection.bytes.npy", "test.bytes.npy"]
    assert files == sorted([*arrays, "meta.json", "tokenizer.json"])
    assert all((a.folder / f).read_bytes() == (b.folder / f).read_bytes() for f in files)


def test_prepare_with_key_needs_no_text_and_refuses_changed_text(tmp_path: Path) -> None:
    config = config_of(write_texts(tmp_path / "in"))
    made = prepare(config, tmp_path / "cache")
    gone = config_of(tmp_path / "gone" / "*")
    assert prepare(gone, tmp_path / "cache", made.key) == made
    (tmp_path / "in" / "000.txt").write_text("something else")
    with pytest.raises(UserError, match="not what the model was trained on"):
        prepare(config, tmp_path / "other_cache", made.key)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "short", "1 different documents cannot be split in three"),
        ("a.jsonl", "".join(f'{{"text": "{i}"}}\n' for i in range(3)), "smaller sequence_length"),
        ("b.txt", "x", "no file matches"),
    ],
)
def test_prepare_refuses_unusable_text(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        prepare(config_of(tmp_path / "a.*"), tmp_path / "cache")


def test_bad_data_is_skipped_or_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = [json.dumps({"text": text}).encode() for text in TEXTS]
    lines[7], lines[11] = b"{", b'{"txt": 1}'
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines))
    (tmp_path / "b.parquet").write_bytes(b"PAR1 no")
    paths = tmp_path / "**"
    with pytest.raises(UserError, match=r"a.jsonl:8: not a JSON object.*on_bad_data: skip"):
        prepare(config_of(paths), tmp_path / "cache")
    dataset = prepare(config_of(paths, on_bad_data="skip"), tmp_path / "cache")
    expected = ["a.jsonl:8: not", "a.jsonl:12: no text under 'text'", "b.parquet: not a Parquet"]
    for line, problem in zip(dataset.meta["skipped"], expected, strict=True):
        assert problem in line
        assert line in caplog.text
    assert dataset.meta["sequences"]["train"] > 0
    with pytest.raises(UserError):  # the skipping configuration has another key
        prepare(config_of(paths), tmp_path / "cache")


def test_named_sets_are_prepared_in_halves_without_what_is_trained_on(
    tmp_path: Path, count_builds: Callable[[], int]
) -> None:
    own, cache = write_texts(tmp_path / "in"), tmp_path / "cache"
    new = [{"text": f"Another text {i} with {'cd' * (i % 5)}.\n" * 3} for i in range(40)]

    def write(name: str, rows: list[dict[str, str]]) -> None:
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    write("a", new)
    write("b", [*new[:20], *({"text": text} for text in TEXTS)])
    write("d", new[:1])
    sets = {name: str(tmp_path / f"{name}.jsonl") for name in "ab"}
    plain, dataset = prepare(config_of(own), cache), prepare(config_of(own, selection=sets), cache)
    assert plain.key == dataset.key
    assert count_builds() == 3
    texts = (decoded(dataset.sets["a"], split, dataset.tokenizer_file) for split in HELD_OUT)
    first, second = (set(text.split(END)[:-1]) for text in texts)
    assert first
    assert second
    assert not first & second
    assert first | second <= {row["text"] for row in new}
    assert dataset.sets["a"].meta["end"] == dataset.end
    trained = set(decoded(dataset, Split.TRAIN).split(END)[:-1])
    assert len(dataset.sets["b"].meta["skipped"]) == len(trained) > 40
    assert prepare(config_of(own, selection=sets), cache, dataset.keys) == dataset
    (tmp_path / "b.jsonl").unlink()  # not read where the keys are known
    assert prepare(config_of(own, selection=sets), cache, dataset.keys) == dataset
    assert count_builds() == 3
    write("c", [{"text": text} for text in trained])
    with pytest.raises(UserError, match=r"data.selection.c: .*smaller sequence_length"):
        prepare(config_of(own, selection={"c": str(tmp_path / "c.jsonl")}), cache)
    with pytest.raises(UserError, match=r"data.selection.d: 1 different documents .* in two"):
        prepare(config_of(own, selection={"d": str(tmp_path / "d.jsonl")}), cache)


@pytest.mark.parametrize(
    ("sets", "what"),
    [
        ({"a": {"paths": "a.txt", "weight": 1}, "b": "b.txt"}, "b has no weight"),
        ({"a/b": "a.txt"}, "a/b"),
        ({"a": []}, "a needs paths"),
        ({"a": {"paths": "a.txt", "weight": 0}}, "weight"),
        ({"a": "no.txt"}, "no file matches"),
        ({"a": "in/003.txt"}, "is trained on"),
    ],
)
def test_named_sets_that_cannot_be_used_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sets: object, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    own = config_of(write_texts(tmp_path / "in")).model_dump(exclude_unset=True)
    own["data"]["selection"] = sets
    problems = CausalLMConfig.problems(own)
    (path, text), *_ = problems or CausalLMConfig.model_validate(own).missing_files()
    assert path[:2] == ("data", "selection")
    assert what in f"{path} {text}"


def test_texts_in_the_train_split_and_another_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for split in Split:
        lines = [json.dumps({"text": f"{split if i > 2 else 'all'} {i} " * 9}) for i in range(40)]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
    (tmp_path / "README.md").write_text("about")
    data = {"source": "files", "paths": [str(tmp_path / "*")], "splits": "file_names"}
    config = CausalLMConfig.model_validate(
        {"data": data, "sequence_length": 8, "vocab_size": 300, "batch_size": 1}
    )
    assert config.notes() == ["data: files: 3 .jsonl, 1 .md"]
    (tmp_path / "README.md").unlink()
    prepare(config, tmp_path / "cache")
    assert "data: 3 different texts are in the train split and in another" in caplog.text
