"""Mistakes of the user that `tune doctor` finds before it starts anything."""

from __future__ import annotations

import pytest

from tests.cli.conftest import DIGITS, Tune


def test_wrong_environment_is_refused(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUM_WORKERS", "many")
    assert tune.refused("doctor") == "NUM_WORKERS: must be a whole number, got 'many'\n"


def test_set_needs_a_file(tune: Tune) -> None:
    assert tune.refused("doctor", "--set", "seed=1") == "--set changes a sweep file; name one\n"


def test_mistakes_in_the_file_are_those_of_plan(tune: Tune) -> None:
    output = tune.refused("doctor", DIGITS, "--set", "metric=accuracyy")
    assert "digits does not report 'accuracyy'" in output
