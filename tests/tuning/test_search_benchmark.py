"""The search benchmark on a task of its own: budgets, seeds, and this platform's classes in it."""

from __future__ import annotations

import pytest

from benchmarks.search.ours import Ours
from benchmarks.search.peers import OptunaHyperband, RayOptuna
from benchmarks.search.simulate import FULL_TRAININGS, SHARES, Attempt, run
from benchmarks.search.tables import tables
from benchmarks.search.tasks import misleading, scale


class Counting:
    """Random configurations, none stopped; counts what it is told."""

    def __init__(self, task):
        self.epochs, self.trials, self._space = [], 0, task.space

    def next(self):
        self.trials += 1
        return Attempt(str(self.trials), dict.fromkeys(self._space, self.trials / 100))

    def report(self, trial, epoch, error):
        self.epochs.append((trial, epoch))
        return True

    def close(self):
        self.closed = True


def test_the_budget_is_spent_and_no_more():
    (task,) = misleading(1)
    contender = Counting(task)
    outcome = run(task, contender, seed=0)
    assert len(outcome.best) == len(SHARES)
    assert outcome.best == sorted(outcome.best, reverse=True)
    assert len(contender.epochs) == pytest.approx(FULL_TRAININGS * task.epochs, rel=0.1)
    assert len(set(contender.epochs)) == len(contender.epochs)
    assert outcome.asks == contender.trials
    assert contender.closed


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda t, s: Ours(t, s, "random", "asha_promote"),
        RayOptuna,
        OptunaHyperband,
    ],
    ids=["ours", "ray", "optuna"],
)
@pytest.mark.filterwarnings("ignore")
def test_the_seed_decides(make):
    (task,) = misleading(1)
    best = [run(task, make(task, seed), seed).best for seed in (1, 1, 2)]
    assert best[0] == best[1] != best[2]


def test_the_table_pairs_and_ranks():
    cells = [
        {
            "family": "f",
            "task": str(task),
            "seed": 0,
            "contender": name,
            "regret": [regret] * 20 + [regret / 2] * 20,
            "asks": 10,
            "seconds": 1.0,
        }
        for task in range(3)
        for name, regret in (("good", 0.2), ("bad", 0.4 + task / 10))
    ]
    text = tables([*cells, {**cells[0], "contender": "unfinished"}], "good")
    good, bad = (line for line in text.splitlines() if line.startswith(("| good", "| bad")))
    assert good.startswith("| good | 0.200 [0.200, 0.200] |")
    assert "| 1.0 | 1.0 | 1.0 | 1.0 | 0.100 | - |" in good
    assert "| 2.0 | 2.0 | 2.0 | 2.0 | 0.100 | 0.150 [" in bad
    assert "unfinished" not in text
    assert "bad: 2%" in text


def test_low_rungs_mislead_in_the_family_that_is_made_for_it():
    for task in misleading(3):
        low, high = scale(task)
        assert low < high
        good, bad = task.curves(
            [dict(zip(task.space, p, strict=True)) for p in (task._needle, [0.0] * 4)]
        )
        assert good[-1] < bad[-1]
        assert good[0] > bad[0]
