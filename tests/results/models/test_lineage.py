"""The models from which a model comes are found by the paths in configurations."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from results.models.lineage import TrainedModel, ancestors
from results.models.origins import Origin, origin_of
from results.paths import SweepPaths
from tests.results.written import write_checkpoint
from tests.tuning.simulate import finish, make_spec, new_sweep, open_run


def trained(name: str, storage: Path, **fixed: Any) -> SweepPaths:
    spec = make_spec(name=name, fixed=fixed, budget={"trials": 2})
    paths = new_sweep(spec, storage)
    finish(open_run(paths.root, spec))
    for trial in paths.trial_ids():
        write_checkpoint(paths.trial(trial), 9, {"weights.txt": f"{name} {trial}"})
    return paths


def models(paths: SweepPaths, trial: str) -> list[TrainedModel]:
    return [one for one in ancestors(paths, trial) if isinstance(one, TrainedModel)]


def test_a_model_has_its_origins_while_their_folders_are_there(tmp_path: Path) -> None:
    first = trained("first", tmp_path)
    origin = str(first.exports / "t0001-hf")
    second = trained("second", tmp_path, model_name_or_path=origin, data={"mix": "a/b"})
    teacher = str(second.trial("t0000").newest_checkpoint())
    third = trained("third", tmp_path, teacher={"path": teacher}, model_name_or_path="hub/name")

    found = models(third, "t0001")
    assert [(one.title, one.name) for one in found] == [
        ("first", "t0001"),
        ("second", "t0000"),
        ("third", "t0001"),
    ]
    assert found[2].sources == {"teacher.path": (Origin(second.root, "t0000"),)}
    assert [one.origin for one in found] == ["", "", "hub/name"]
    newest = first.trial("t0001").newest_checkpoint()
    assert newest is not None
    digest = hashlib.sha256((newest / "weights.txt").read_bytes()).hexdigest()
    assert found[0].weights == {"weights.txt": digest}
    assert found[0].metrics.keys() == {"loss", "size"}

    shutil.rmtree(first.root)
    found = models(third, "t0001")
    assert [one.title for one in found] == ["second", "third"]
    assert found[0].origin == origin


def test_texts_that_are_no_paths_have_no_source(tmp_path: Path) -> None:
    for text in ("adamw", "a/b", "/" + "x" * 5000, "zero\0byte/x", str(tmp_path / "x")):
        assert origin_of(text) is None
