"""Regular expressions of a sweep file end in time, and use little memory."""

from __future__ import annotations

import logging
import time

import pytest

from results.records.failures import Remedy, classify
from search_spaces.patterns import check_patterns, matches

LINE = "a" * 20_000 + "!"


@pytest.mark.parametrize("pattern", ["(a+)+$", r"(?:(?:.+)+)+\d$", "(x?a){1,50}b"])
def test_slow_pattern_ends_and_is_not_tried_again(pattern, caplog):
    check_patterns([pattern])
    began = time.process_time()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert classify("boom", LINE, patterns={pattern: Remedy.FAIL_TRIAL}).remedy == "retry"
    assert time.process_time() - began < 2
    warned = [r for r in caplog.records if pattern in r.getMessage()]
    assert len(warned) <= 1


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        ("a{4294967294}", "multiply to more than 10000"),
        ("((a{1000}){1000}){1000}", "multiply to more than 10000"),
        ("((a{,500}){2,500}){500 }", "multiply to more than 10000"),
        ("(" * 300 + "a" * 300, "at most 500 characters, got 600"),
        ("(a", "is not a regular expression"),
        (r"\L<names>", "is not a regular expression"),
    ],
)
def test_pattern_that_could_use_much_memory_is_refused(pattern, error):
    with pytest.raises(ValueError, match=error):
        check_patterns([pattern])


def test_usual_patterns_match_as_in_re():
    found = "2026-01-02 03:04:05 host rank 3: NCCL error: unhandled system error"
    usual = [r"\d{4}-\d{2}-\d{2}", r"(?i)nccl ERROR", r"rank (\d+)\b(?=:)", r"error$", "^2026"]
    check_patterns(usual)
    assert all(matches(pattern, found) for pattern in usual)
    assert not matches("^NCCL", found)


def test_many_patterns_are_refused():
    with pytest.raises(ValueError, match="at most 20 patterns, got 21"):
        check_patterns([str(i) for i in range(21)])
