"""Non-dominated points."""

from hypothesis import given, settings
from hypothesis import strategies as st

from results.analysis.pareto import non_dominated

POINTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)


@given(POINTS)
@settings(max_examples=80)
def test_non_dominated_matches_its_definition(raw: list[tuple[int, int]]) -> None:
    points = [{"loss": float(a), "accuracy": float(b)} for a, b in raw]
    found = non_dominated(points, {"loss": "min", "accuracy": "max"})

    def better(i: int, j: int) -> bool:
        (a, b), (c, d) = raw[i], raw[j]
        return a <= c and b >= d and (a, b) != (c, d)

    assert found == [j for j in range(len(raw)) if not any(better(i, j) for i in range(len(raw)))]
    assert found
