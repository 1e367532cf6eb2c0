from __future__ import annotations

import pytest

from benchmarks.search.__main__ import BEGIN, END, write_page
from benchmarks.search.baseline import OneEpoch
from benchmarks.search.ours import Ours
from benchmarks.search.peers import OptunaHyperband, RayOptuna
from benchmarks.search.proposals import ASKS, proposals
from benchmarks.search.simulate import FULL_TRAININGS, SHARES, Attempt, Contender, run
from benchmarks.search.tables import tables
from benchmarks.search.tasks import misleading, scale


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


def test_baseline_trains_the_best_after_one_epoch_of_each():
    (task,) = misleading(1)
    baseline, epochs = OneEpoch(task, seed=0), {}
    reported = baseline.report
    baseline.report = lambda trial, epoch, error: (
        epochs.__setitem__(trial, epoch) or reported(trial, epoch, error)
    )
    run(task, baseline, seed=0)
    half = FULL_TRAININGS * task.epochs // 2
    continued = [t for t, epoch in epochs.items() if epoch > 1]
    assert len(epochs) == half
    assert 0.8 * FULL_TRAININGS / 2 < len(continued) < 1.5 * FULL_TRAININGS / 2
    first = dict(zip(epochs, task.curves([baseline.configs[t] for t in epochs])[:, 0], strict=True))
    assert set(continued) <= set(sorted(first, key=first.__getitem__)[: len(continued) + 8])


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
def test_same_seed_gives_the_same_result(make):
    (task,) = misleading(1)
    best = [run(task, make(task, seed), seed).best for seed in (1, 1, 2)]
    assert best[0] == best[1] != best[2]


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


def test_regret_is_never_negative():
    text = tables([cell("lucky", 0, [0.05] * 40), cell("other", 0, [0.1] * 40)], "lucky")
    assert row(text, "lucky")[4] == "0.000 [0.000, 0.000]"
    assert row(text, "other")[4] == "0.048 [0.048, 0.048]"


def test_contender_with_fewer_sweeps_is_compared_on_common_ones():
    both = [cell(n, task, [best] * 40) for n, best in (("a", 0.2), ("b", 0.3)) for task in range(4)]
    fewer = [cell("slow", task, [0.1] * 40) for task in (1, 2)]
    slower = [cell("slower", 1, [0.4] * 40)]
    whole, two, one = tables([*both, *fewer, *slower], "a").split("\n\n**")
    assert "4 sweeps" in whole
    assert "slow" not in whole
    assert "2 sweeps" in two
    assert "slower" not in two
    assert [row(two, name)[5] for name in ("slow", "a", "b")] == ["1.0", "2.0", "3.0"]
    assert "1 sweeps" in one
    assert row(one, "slower")[5] == "4.0"


def test_proposals_of_a_large_sweep_are_timed():
    seconds = proposals(30)
    assert len(seconds) == ASKS
    assert min(seconds) > 0


def test_low_rungs_mislead_in_misleading_tasks():
    for task in misleading(3):
        low, high = scale(task)
        assert low < high
        good, bad = task.curves(
            [dict(zip(task.space, p, strict=True)) for p in (task.needle, [0.0] * 4)]
        )
        assert good[-1] < bad[-1]
        assert good[0] > bad[0]
