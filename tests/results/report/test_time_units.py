"""Times are shown in hours, minutes or seconds."""

import pytest

from results.report.time_units import unit_for


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (4e5, "111 h")],
)
def test_unit_for_chooses_a_readable_unit(seconds: float, shown: str) -> None:
    unit = unit_for(seconds)
    assert f"{unit.format(seconds)} {unit.symbol}" == shown
