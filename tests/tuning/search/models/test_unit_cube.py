from __future__ import annotations

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from tuning.search.models.unit_cube import Cube

SPACE = {
    "x": FloatDistribution(-1.0, 3.0),
    "lr": FloatDistribution(1e-5, 1e-1, log=True),
    "q": FloatDistribution(0.0, 1.0, step=0.25),
    "n": IntDistribution(1, 5),
    "width": IntDistribution(16, 512, log=True),
    "heads": IntDistribution(8, 128, step=8),
    "kind": CategoricalDistribution(["a", "b", None]),
    "constant": IntDistribution(3, 3),
}


class TestCube:
    cube = Cube(SPACE)
    shares = np.random.default_rng(0).random((200, len(SPACE) - 1))

    def test_decoded_values_are_in_the_space(self):
        for row in self.shares:
            values = self.cube.decode(row)
            assert set(values) == set(SPACE) - {"constant"}
            create_trial(value=0.0, params=values, distributions={k: SPACE[k] for k in values})
            assert isinstance(values["width"], int)

    def test_points_equal_encoded_configurations(self):
        """Bit for bit: it is how the sampler knows what was proposed before."""
        decoded = [self.cube.decode(row) for row in self.shares]
        points = self.cube.points(self.shares)
        assert points.shape == (200, self.cube.width)
        assert points.tobytes() == self.cube.encode(decoded).tobytes()
        assert points.min() >= 0
        assert points.max() <= 1

    def test_shares_invert_decode(self):
        decoded = [self.cube.decode(row) for row in self.shares]
        again = [self.cube.decode(row) for row in self.cube.shares(decoded)]
        for one, other in zip(decoded, again, strict=True):
            assert one == pytest.approx(other)

    def test_whole_numbers_and_categories_are_equally_likely(self):
        decoded = [self.cube.decode(np.full(7, s)) for s in np.linspace(0, 1, 3001)[:-1]]
        counts = [sum(d["n"] == n for d in decoded) for n in range(1, 6)]
        assert max(counts) - min(counts) <= 2
        assert [sum(d["kind"] == k for d in decoded) for k in ("a", "b", None)] == [1000] * 3

    def test_missing_parameters_are_in_the_middle(self):
        (point,) = self.cube.encode([{"n": 1}])
        assert point.tolist() == [0.5, 0.5, 0.5, pytest.approx(0.1), 0.5, 0.5, 0, 0, 0]

    def test_encode_of_nothing_is_empty(self):
        assert self.cube.encode([]).shape == (0, self.cube.width)
        assert Cube({}).encode([{}, {}]).shape == (2, 0)
