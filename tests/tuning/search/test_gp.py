"""The searcher's models: configurations as points, and the Gaussian process."""

from __future__ import annotations

import numpy as np
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from tuning.search.models.gp import GaussianProcess, expected_improvement, standardise
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

    def test_the_point_of_shares_is_that_of_the_configuration(self):
        """Bit for bit: it is how the sampler knows what was proposed before."""
        decoded = [self.cube.decode(row) for row in self.shares]
        points = self.cube.points(self.shares)
        assert points.shape == (200, self.cube.width)
        assert points.tobytes() == self.cube.encode(decoded).tobytes()
        assert points.min() >= 0
        assert points.max() <= 1

    def test_shares_are_the_inverse_of_decoding(self):
        decoded = [self.cube.decode(row) for row in self.shares]
        again = [self.cube.decode(row) for row in self.cube.shares(decoded)]
        for one, other in zip(decoded, again, strict=True):
            assert one == pytest.approx(other)

    def test_whole_numbers_and_categories_are_equally_likely(self):
        decoded = [self.cube.decode(np.full(7, s)) for s in np.linspace(0, 1, 3001)[:-1]]
        counts = [sum(d["n"] == n for d in decoded) for n in range(1, 6)]
        assert max(counts) - min(counts) <= 2
        assert [sum(d["kind"] == k for d in decoded) for k in ("a", "b", None)] == [1000] * 3

    def test_what_is_not_there_is_in_the_middle(self):
        (point,) = self.cube.encode([{"n": 1}])
        assert point.tolist() == [0.5, 0.5, 0.5, pytest.approx(0.1), 0.5, 0.5, 0, 0, 0]

    def test_nothing_to_encode(self):
        assert self.cube.encode([]).shape == (0, self.cube.width)
        assert Cube({}).encode([{}, {}]).shape == (2, 0)


def surface(x):
    return np.sin(3 * x[:, 0]) + x[:, 1] ** 2


class TestGaussianProcess:
    @pytest.mark.parametrize("count", [30, 200], ids=["few", "more than decide on the kernel"])
    def test_foretells_what_it_was_not_told(self, count):
        x = np.random.default_rng(1).random((count, 3))
        y, _ = standardise(surface(x))
        process = GaussianProcess.fit(x[:-10], y[:-10])
        mean, deviation = process.predict(x[-10:])
        assert np.abs(mean - y[-10:]).max() < 0.35
        assert (np.abs(mean - y[-10:]) < 4 * deviation + 0.05).all()
        assert process.predict(x[:1])[1] < deviation.max()

    def test_believed_points_are_no_longer_uncertain(self):
        x = np.random.default_rng(1).random((20, 2))
        process = GaussianProcess.fit(x, standardise(surface(x))[0])
        far = np.array([[3.0, 3.0]])
        mean, deviation = process.predict(far)
        believed, less = process.with_believed(far).predict(far)
        assert believed == pytest.approx(mean, abs=1e-3)
        assert less < deviation / 3

    def test_improvement_wants_high_means_and_deviations(self):
        merit = expected_improvement(np.array([0, 1, 0]), np.array([0.1, 0.1, 1.0]), best=1.0)
        assert merit.argsort().tolist() == [0, 1, 2]

    def test_one_that_diverged_does_not_flatten_the_rest(self):
        values, _ = standardise(np.array([0.0, 0.1, 0.2, 0.3, -1e6]))
        assert values[3] - values[0] > 0.3
