"""A write that fails in a callback of Ray Tune, and sessions in the background."""

from __future__ import annotations

import pytest

from results.records.trial import TrialState
from results.storage.fault_injection import VARIABLE
from results.sweep_folder.lock import current_driver
from tests.chaos.cluster import ENV
from tests.ray.conftest import LONGEST_S, Tune
from tests.search_spaces.examples import DIGITS
from tests.waiting import wait_for


def test_write_error_in_a_callback_ends_the_session_with_one_line(tune: Tune) -> None:
    (tune.cwd / "digits.yaml").write_text(DIGITS)
    paths = tune.paths("digits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ENV, VARIABLE, "trial.json:written:2=ENOSPC")
        _, said = tune.start("run", "digits.yaml").communicate(timeout=LONGEST_S)
    record = paths.trial("t0000").record
    assert said.startswith(f"{record}: No space left on device for ")
    assert said.endswith("free some space, then run tune resume\n")
    assert said.count("\n") == 1
    assert current_driver(paths.lock) is None

    said = tune("resume", "digits", "--detach")
    assert f"its output goes to {paths.log}" in said
    wait_for(lambda: "winner t000" in paths.log.read_text())
    assert current_driver(paths.lock) is None
    assert [r.state for r in tune.trials("digits")] == [TrialState.COMPLETED] * 2


def test_detached_run_checks_the_file_in_the_foreground(tune: Tune) -> None:
    (tune.cwd / "digits.yaml").write_text(DIGITS)
    err = tune("run", "digits.yaml", "--set", "fixed.epochs=none", "--detach", code=2)
    assert "epochs" in err
    assert not (tune.cwd / "sweeps").exists()

    said = tune("run", "digits.yaml", "--set", "budget.trials=1", "--detach")
    paths = tune.paths("digits")
    assert f"its output goes to {paths.log}" in said
    wait_for(lambda: "winner t0000" in paths.log.read_text())
    assert current_driver(paths.lock) is None
