import pytest

from trainables.training.schedules import FINAL_LR, Schedule, lr_factor


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("constant", [1 / 3, 2 / 3, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ("linear", [1 / 3, 2 / 3, *(1 - 0.9 * n / 8 for n in range(9))]),
        ("wsd", [1 / 3, 2 / 3, 1, 1, 1, 1, 1, 0.775, 0.55, 0.325, 0.1]),
    ],
)
def test_factors_of_ten_steps(schedule: Schedule, factors: list[float]) -> None:
    factor = lr_factor(schedule, warmup=2, decay=4, total=10)
    assert [factor(done) for done in range(11)] == pytest.approx(factors)


def test_cosine_passes_its_middle_halfway() -> None:
    factor = lr_factor("cosine", warmup=2, decay=4, total=10)
    assert factor(2) == 1
    assert factor(6) == pytest.approx((1 + FINAL_LR) / 2)
    assert factor(10) == factor(99) == pytest.approx(FINAL_LR)
    assert lr_factor("cosine", warmup=0, decay=0, total=1)(0) == 1
