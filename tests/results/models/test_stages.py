"""`stages.json`: the models of stages are read back, also from a file of the version before."""

from __future__ import annotations

from pathlib import Path

import pytest

from results.models.ref import ModelRef
from results.models.stages import StageRecord, StageRecords, read_stages, write_stages
from results.records.pipeline import PipelinePaths
from search_spaces.checksum import add_json_checksum
from search_spaces.errors import DamagedRecordsError

BEFORE = """{
 "stages": {
  "pretrain": {"key": "1f", "began": 1.0, "seconds": 2.5, "done": true,
   "result": {"winner": "t0001", "eval_loss": 1.5, "cpu_hours": 0.1, "gpu_hours": 0.0}},
  "averaged": {"key": "2f", "began": 4.0, "seconds": 0.5, "done": true,
   "result": {"soup": "averaged", "eval_loss": 1.4}},
  "sft": {"key": "3f", "began": 5.0, "seconds": 0.0, "done": false, "result": {}}
 },
 "earlier": {"sft@4f": {"key": "4f", "began": 0.5, "seconds": 1.0, "done": true, "result": {}}},
 "signed": ["a", "b"], "identity": "c0ffee", "places": ["/sweeps/stories"]
}"""
"""As a commit before models were recorded wrote it."""


@pytest.fixture
def paths(tmp_path: Path) -> PipelinePaths:
    return PipelinePaths(tmp_path)


def test_stages_of_the_version_before_are_read(paths: PipelinePaths) -> None:
    paths.records.write_text(add_json_checksum(BEFORE))
    found = read_stages(paths)
    assert (found.identity, found.places, found.signed) == (
        "c0ffee",
        ("/sweeps/stories",),
        ("a", "b"),
    )
    assert [(n, r.key, r.done) for n, r in found.stages.items()] == [
        ("pretrain", "1f", True),
        ("averaged", "2f", True),
        ("sft", "3f", False),
    ]
    assert found.stages["pretrain"].result["winner"] == "t0001"
    assert [m.name for m in found.stages["averaged"].models] == ["averaged"]
    assert found.stages["sft"].inputs == ()
    assert found.earlier["sft@4f"].seconds == 1.0


def test_models_are_read_back(paths: PipelinePaths) -> None:
    model = ModelRef(
        "export", "/x/t0001-hf", "t0001", "ab", {"lr": 0.1}, {"loss": None}, ("t0001",)
    )
    records = StageRecords({"sft": StageRecord("1f", 1.0, inputs=(model,), models=(model, model))})
    write_stages(paths, records)
    assert read_stages(paths) == records
    paths.records.write_bytes(paths.records.read_bytes().replace(b"t0001-hf", b"t0002-hf", 1))
    with pytest.raises(DamagedRecordsError, match="checksum"):
        read_stages(paths)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ("[]", "list"),
        (BEFORE.replace("1.0", "1e18"), "began: "),
        (BEFORE.replace("1.0", "NaN"), "began: "),
        (BEFORE.replace("2.5", '"x"'), "seconds: "),
        (BEFORE.replace("true", "3"), "done: "),
        (BEFORE.replace("{}", "[1]"), "result: "),
    ],
)
def test_a_record_of_another_kind_is_damaged(
    paths: PipelinePaths, changed: str, reason: str
) -> None:
    paths.records.write_text(changed)
    with pytest.raises(DamagedRecordsError, match=rf"stages\.json: not readable \(.*{reason}"):
        read_stages(paths)
