"""`mfgp` proposes no configuration twice: at the start, at random, and from its model."""

from __future__ import annotations

import pytest

from tests.tuning.simulate import make_spec, open_run, train

SPACES = {
    "whole numbers": {"k": {"randint": [0, 16]}},
    "categories": {"a": {"choice": [1, 2, 3, 4]}, "b": {"choice": [1, 2, 3, 4]}},
    "quantised logarithms": {"k": {"qlograndint": [8, 128, 8]}},
    "quantised": {"x": {"quniform": [0.0, 1.5, 0.1]}},
    "conditional": {
        "o": {"choice": {"one": {"p": {"randint": [0, 8]}}, "two": {"q": {"randint": [0, 8]}}}}
    },
}


@pytest.mark.parametrize("name", SPACES)
def test_mfgp_proposes_each_of_sixteen_values_once(tmp_path, name):
    trials = propose(tmp_path, SPACES[name], 17)
    assert len(set(trials[:16])) == 16
    assert trials[16] in trials[:16]


def test_random_proposals_of_mfgp_differ(tmp_path):
    assert len(set(propose(tmp_path, SPACES["conditional"], 16, random_share=1.0))) == 16


def test_quantised_normal_proposals_of_mfgp_differ(tmp_path):
    """Of 25 values; random samples hardly find those of the tails."""
    assert len(set(propose(tmp_path, {"x": {"qrandn": [0.0, 1.0, 0.5]}}, 12))) == 12


def propose(tmp_path, space, count, random_share=0.0):
    spec = make_spec(
        space=space,
        search={"name": "mfgp", "startup_trials": 6, "random_share": random_share},
        scheduler={"name": "none", "max_t": 1},
        budget={"trials": count},
    )
    run = open_run(tmp_path, spec)
    for _ in range(count):
        train(run, run.next_trial(), upto=1, value=lambda c, s: float(len(str(c).split("1"))))
    return [str(r.params) for r in sorted(run.records.values(), key=lambda r: r.number)]
