"""MinHash estimates the similarity of texts, and finds those that are nearly the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from trainables.data.stage.duplicates import (
    MINIMA,
    RUN,
    NearDuplicates,
    digest,
    signature,
    similarity,
)


def text_of(seed: int, words: int = 300) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices("abcdefghij", k=6)) for _ in range(words)]


def jaccard(one: list[str], other: list[str]) -> float:
    runs = [{tuple(t[i : i + RUN]) for i in range(len(t) - RUN + 1)} for t in (one, other)]
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1])


@pytest.mark.parametrize("changed", [0, 5, 40, 150, 300])
def test_the_share_of_equal_minima_estimates_the_jaccard_similarity(changed: int) -> None:
    errors, bounds = [], []
    for seed in range(30):
        one = text_of(seed)
        other = [*one[changed:], *text_of(1000 + seed, changed)]
        exact = jaccard(one, other)
        errors.append(similarity(signature(" ".join(one)), signature(" ".join(other))) - exact)
        bounds.append((exact * (1 - exact) / MINIMA) ** 0.5)
    # the mean of 30 estimates is unbiased: within four standard errors of the exact value
    assert abs(np.mean(errors)) <= 4 * np.mean(bounds) / 30**0.5 + 1e-9


def test_a_text_with_a_few_other_words_is_left_out_and_another_is_kept() -> None:
    one, near = text_of(1), NearDuplicates(0.8)
    assert near.add(signature(" ".join(one)))
    assert not near.add(signature(" ".join([*one[:-4], "the", "end"])))
    assert near.add(signature(" ".join(text_of(2))))


def test_case_spaces_and_forms_of_unicode_do_not_count() -> None:
    assert digest("Once  upon\na TIME") == digest("once upon a time")
    assert digest("caf\u00e9") == digest("cafe\u0301")
    assert digest("one") != digest("two")
