"""A metric in a line of output: its whole name, a separator, and a number."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import check_sweep, load_sweep
from search_spaces.patterns import check_patterns, first_group, metric_pattern
from search_spaces.positions import Source
from trainables.user_code.command.reports import OutputPatterns
from tuning.controller.preflight.relative_paths import file_notes

FOUND = {
    "loss=0.25": 0.25,
    "epoch 1 train_loss=9.0 loss=1.0": 1.0,
    "val/loss=9 my-loss=8 x.loss: 7 loss_a=6 loss-b=5 loss: 1": 1.0,
    "{'loss': 0.25, 'grad_norm': 3.1}": 0.25,
    '{"epoch": 3, "loss": "2e-05"}': 2e-05,
    "INFO:root:loss = -.5,": -0.5,
    "loss=1e loss=+3.": 3.0,
    "accuracy=0.5|loss=93.5%|": 93.5,
    "The loss: 3.": 3.0,
    "loss=1,acc=2": 1.0,
    "loss=3/10": 3.0,
    "loss=Infinity": math.inf,
}
MISSING = [
    "loss=1e",
    "loss=1e-",
    "loss=-",
    "loss=..",
    "loss=",
    "loss=1.2.3",
    "loss=0,5",
    "loss=1,234",
    "loss=12:30",
    "loss=2024-01-02",
    "loss=0x1F",
    "loss=3ms",
    "loss=1_000",
    "loss=nano",
    "loss=information",
    "lossy=1",
    "aloss=1",
    "--loss=1",
    "loss",
    "loss=abc",
    "loss=1..2",
    "loss=v1.2",
]


@pytest.mark.parametrize("line", FOUND)
def test_number_of_a_whole_name_is_found(line: str) -> None:
    found = first_group(metric_pattern("loss"), line)
    assert found is not None
    assert float(found) == FOUND[line]


@pytest.mark.parametrize("line", MISSING)
def test_longer_names_and_what_is_no_number_are_passed_over(line: str) -> None:
    assert first_group(metric_pattern("loss"), line) is None


def test_nan_is_a_number() -> None:
    found = first_group(metric_pattern("loss"), "loss=-NaN")
    assert found is not None
    assert math.isnan(float(found))


@given(st.floats(), st.sampled_from(["val/loss", "top-1@5", "loss (a+b)", "a.b", "λ"]))
def test_every_number_and_name_is_found_as_it_is(number: float, name: str) -> None:
    pattern = metric_pattern(name)
    check_patterns([pattern])
    found = first_group(pattern, f"step=1 {name}={number!r}, next=2")
    assert found is not None
    assert float(found) == number or math.isnan(number)


@pytest.mark.parametrize(
    ("pattern", "line", "whole"),
    [
        (r"loss=([\d.]+)", "loss=3e-05", "3e-05"),
        (r"loss=-?([\d.]+)", "loss=-0.5 acc=1", "-0.5"),
        (r"loss.*(\d+\.\d+)", "loss: 12.5", "12.5"),
        (r"loss=(\d+)", "loss=0.5", "0.5"),
        (r"loss=([\d.]+)", "loss=1,234,567.5, acc=1", "1,234,567.5"),
        (r"loss=([\d.]+)", "loss=0,53", "0,53"),
    ],
)
def test_part_of_a_number_is_refused(pattern: str, line: str, whole: str) -> None:
    with pytest.raises(UserError, match=f"a part of '{whole}'"):
        list(OutputPatterns({"loss": pattern}).feed(line))
    with pytest.raises(UserError, match=r"found '.+' in 'loss.+' of the error output, a part"):
        list(OutputPatterns({"loss": pattern}).feed(line, strict=False))


@pytest.mark.parametrize("first", [True, False])
def test_line_that_a_logger_writes_to_both_streams_is_one_report(first: bool) -> None:
    feed = OutputPatterns({"loss": r"loss=(\S+)"}).feed
    lines = ["loss=3", "loss=2", "loss=2", "loss=1"]
    streams = [(line, first) for line in lines] + [(line, not first) for line in lines[:3]]
    streams.append(("loss=0", not first))
    found = [r.values["loss"] for line, strict in streams for r in feed(line, strict=strict)]
    assert found == [3.0, 2.0, 2.0, 1.0, 0.0]


@pytest.mark.parametrize("pattern", [r"^(\d+),", r"(\d+)(?:,\d+)*$"])
def test_pattern_with_a_comma_takes_a_column(pattern: str) -> None:
    (report,) = OutputPatterns({"loss": pattern}).feed("1,25")
    assert report.values == {"loss": 1.0}


@pytest.mark.parametrize("line", ["1,0.5,123", "x-0.5s", "[0.5/10]", "v1.0.5", "0.50e", "+0.5"])
def test_number_among_other_text_is_whole(line: str) -> None:
    (report,) = OutputPatterns({"loss": r"(0\.50?)"}).feed(line)
    assert report.values == {"loss": 0.5}


@pytest.mark.parametrize(
    ("pattern", "noted"),
    [
        (r"loss=(\S+)", "xloss=1"),
        (r"val/loss\s*:\s*(\S+)", "xval/loss=1"),
        (r"\bloss=(\S+)", ""),
        (r"Epoch \d+: loss=(\S+)", ""),
        (metric_pattern("loss"), ""),
    ],
)
def test_pattern_that_is_found_in_longer_names_is_noted(pattern: str, noted: str) -> None:
    data = sweep(pattern, "cat", "{x}")
    (note,) = file_notes(check_sweep(data, Source("s.yaml", {})), files=False) or [""]
    assert noted in note
    assert bool(note) == bool(noted)


def test_words_for_a_shell_are_noted(tmp_path: Path) -> None:
    for words, noted in ((["cat", "{x}", ">", "log"], "'>' is an argument of cat"), (["cat"], "")):
        file = tmp_path / "s.yaml"
        file.write_text(json.dumps(sweep(metric_pattern("loss"), *words)))
        assert noted in "".join(file_notes(load_sweep(file), files=False))


def sweep(pattern: str, *command: str) -> dict[str, Any]:
    return {
        "name": "s",
        "command": [*command],
        "report_from": {"stdout": {"loss": pattern}},
        "metric": "loss",
        "mode": "min",
        "space": {"x": {"uniform": [0, 1]}},
        "scheduler": {"name": "none"},
        "budget": {"trials": 1},
    }


@pytest.mark.parametrize("value", ["nan", "-inf", "NaN", "Infinity"])
def test_patterns_of_digits_do_not_pass_over_training_that_diverged(value: str) -> None:
    feed = OutputPatterns({"loss": r"loss=([\d.]+)"}).feed
    (report,) = feed(f"nan_steps=0 step=3 loss={value}, lr=0.1")
    assert not math.isfinite(report.values["loss"])
    assert not list(feed("loss=nano loss=nan.x banana loss: nan"))
