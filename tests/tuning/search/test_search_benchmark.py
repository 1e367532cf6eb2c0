from __future__ import annotations

import pytest

from benchmarks.search.__main__ import BEGIN, END, write_page
from benchmarks.search.proposals import ASKS, proposals
from benchmarks.search.simulate import FULL_TRAININGS, SHARES, Attempt, Contender, run
from benchmarks.search.tables import tables
from benchmarks.search.tasks import misleading


class Counting(Contender):
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


def test_simulation_spends_exactly_the_budget():
    (task,) = misleading(1)
    contender = Counting(task)
    outcome = run(task, contender, seed=0)
    assert len(outcome.best) == len(SHARES)
    assert outcome.best == sorted(outcome.best, reverse=True)
    assert len(contender.epochs) == pytest.approx(FULL_TRAININGS * task.epochs, rel=0.1)
    assert len(set(contender.epochs)) == len(contender.epochs)
    assert len(outcome.asks) == contender.trials
    assert contender.closed


def cell(name, task, best, seed=0):
    return {
        "family": "f",
        "task": str(task),
        "seed": seed,
        "contender": name,
        "low": 0.1,
        "high": 1.1,
        "best": best,
        "median": 0.01,
        "slowest": 0.02,
    }


def row(text, name):
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {name} |"))
    return [part.strip() for part in line.strip("|").split("|")]


def test_tables_pair_and_rank_contenders():
    cells = [
        cell(name, task, [0.1 + regret] * 20 + [0.1 + regret / 2] * 20)
        for task in range(3)
        for name, regret in (("good", 0.2), ("bad", 0.4 + task / 10))
    ]
    text = tables(cells, "good")
    assert "f: 3 tasks, 3 sweeps of each contender" in text
    assert row(text, "good")[1:5] == ["0.200 [0.200, 0.200]"] * 3 + ["0.100 [0.100, 0.100]"]
    assert row(text, "good")[5:] == ["1.0"] * 4 + ["0.010 (at most 0.02)", "-"]
    assert row(text, "bad")[5:9] == ["2.0"] * 4
    assert row(text, "bad")[-1].startswith("0.150 [")
    assert "bad: 2%" in text


def test_tables_are_written_between_the_marks_of_a_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}old\n{END}after\n")
    write_page(page, "| new |")
    assert page.read_text() == f"before\n{BEGIN}\n| new |\n\n{END}after\n"


def test_proposals_of_a_large_sweep_are_timed():
    seconds = proposals(30)
    assert len(seconds) == ASKS
    assert min(seconds) > 0
