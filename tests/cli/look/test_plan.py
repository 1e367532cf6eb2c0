"""`tune plan`: disk space and mirrors."""

from __future__ import annotations

import pytest

from search_spaces.loading.sweep_file import load_sweep
from tests.cli.conftest import DIGITS, Tune
from tuning.cli.look.plan import cost_lines


def test_plan_warns_if_the_disk_is_too_small(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("results.storage.atomic.free_bytes", lambda folder: 1000)
    spec = load_sweep(DIGITS).spec
    lines = cost_lines(spec, [{"learning_rate": 1e-2, "hidden_units": 32}], None)
    assert lines[-1].startswith("           only 1 kB are free in ")


def test_mirror_address_is_checked(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tune.refused("plan", DIGITS, "--set", "checkpoint.mirror=bucket/x")
    assert output == (
        "bucket/x: URI has empty scheme: 'bucket/x'; write s3://bucket/prefix or gs://…\n"
    )
    monkeypatch.setenv("SOME_API_KEY", "canary-b2f1c0de")
    for secret in ("s3://me:pa55word@bucket/x", "s3://bucket/canary-b2f1c0de"):
        output = tune.refused("run", DIGITS, "--set", f"checkpoint.mirror={secret}")
        assert "checkpoint.mirror: holds a secret" in output
        assert "write ${NAME} in its place" in output


def test_pbt_refuses_a_mirror(tune: Tune) -> None:
    change = "scheduler={name: pbt, max_t: 9}", "checkpoint.mirror=s3://bucket/x"
    output = tune.refused("plan", DIGITS, *(a for c in change for a in ("--set", c)))
    assert "pbt copies checkpoints within the sweep folder, which are not mirrored" in output
