"""`tune fetch` and `tune plan` of a sweep that has a mirror."""

import json
import shutil

import pytest

from results.checkpoints.trial_mirror import OWNER, MirrorLocation, TrialMirror
from tests.cli.conftest import DIGITS, Tune, add_checkpoint


def test_a_checkpoint_comes_back(tune: Tune) -> None:
    address = (tune.cwd / "far").as_uri()
    paths = tune.sweep(checkpoint={"mirror": address})
    folder = add_checkpoint(paths, "t0001", 3)
    place = MirrorLocation(address, "simulated", "0123456789abcdef")
    place.open().put(OWNER, json.dumps({"token": place.token}).encode())
    TrialMirror(place, "t0001", 1).send(paths.trial("t0001"), 3)
    shutil.rmtree(folder)
    assert tune("fetch", "simulated", "t0001", "t0000").lines == [
        ["t0001", "step", "3"],
        ["t0000", "nothing", "newer"],
    ]
    assert (folder / "model.safetensors").read_bytes() == b"weights"


def test_without_a_mirror_there_is_nothing_to_fetch(tune: Tune) -> None:
    tune.sweep(budget={"trials": 1})
    assert "is in no object storage (checkpoint.mirror)" in tune.refused("fetch", "simulated")
    assert "no trial 't9'" in tune.refused("fetch", "simulated", "t9")


def test_a_mirror_that_is_none_is_refused_beforehand(
    tune: Tune, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = tune.refused("plan", DIGITS, "--set", "checkpoint.mirror=bucket/x")
    assert said == (
        "bucket/x: URI has empty scheme: 'bucket/x'; write s3://bucket/prefix or gs://…\n"
    )
    monkeypatch.setenv("SOME_API_KEY", "canary-b2f1c0de")
    for secret in ("s3://me:pa55word@bucket/x", "s3://bucket/canary-b2f1c0de"):
        said = tune.refused("run", DIGITS, "--set", f"checkpoint.mirror={secret}")
        assert "checkpoint.mirror: holds a secret" in said
        assert "write ${NAME} in its place" in said


def test_a_population_is_not_mirrored(tune: Tune) -> None:
    change = "scheduler={name: pbt, max_t: 9}", "checkpoint.mirror=s3://bucket/x"
    said = tune.refused("plan", DIGITS, *(a for c in change for a in ("--set", c)))
    assert "pbt copies checkpoints within the sweep folder, which no mirror follows" in said
