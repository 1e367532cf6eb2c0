import math
import random
from statistics import NormalDist

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces.domains.conditional import draw_value
from search_spaces.domains.domain import Domain
from tests.search_spaces.examples import DOMAINS
from tests.tuning.simulate import make_spec, open_run
from tuning.search.optuna_domains import decode, distribution, encode
from tuning.search.optuna_space import OptunaSpace
from tuning.search.schedulers.pbt import perturb, share_of, value_at_share
from tuning.search.study.study import SweepStudy

optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.mark.parametrize("form", DOMAINS, ids=lambda f: next(iter(f)))
def test_samples_are_in_the_domain(form):
    domain = Domain.model_validate(form)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    seen = [decode(domain, study.ask({"x": distribution(domain)}).params["x"]) for _ in range(200)]
    assert all(domain.contains(v) for v in seen)
    if domain.is_categorical or domain.kind in ("randint", "qrandint"):
        expected = domain.categories or range(domain.lower, domain.high + 1, domain.q or 1)
        assert all(v in seen for v in expected)


@pytest.mark.parametrize("form", DOMAINS, ids=lambda f: next(iter(f)))
def test_decode_inverts_encode(form):
    domain = Domain.model_validate(form)
    values = domain.categories or [domain.lower, domain.high]
    for value in values:
        back = decode(domain, encode(domain, value))
        assert back == value or math.isclose(back, value)
        assert type(back) is type(value)


NORMAL = [("randn", [1.5, 0.5]), ("qrandn", [-3.0, 2.0, 0.1])]


@pytest.mark.parametrize(("kind", "arguments"), NORMAL)
@pytest.mark.parametrize("by", ["searcher", "draw", "share"])
def test_normal_domains_are_sampled_normally(kind, arguments, by):
    domain = Domain.model_validate({kind: arguments})
    rng, even = random.Random(0), distribution(domain)
    draws = {
        "searcher": lambda: decode(domain, rng.uniform(even.low, even.high)),
        "draw": lambda: draw_value(domain, rng),
        "share": lambda: value_at_share(domain, rng.random()),
    }
    values = [draws[by]() for _ in range(4000)]
    assert all(map(domain.contains, values))
    drawn, wanted = NormalDist.from_samples(values), NormalDist(*arguments[:2])
    assert abs(drawn.mean - wanted.mean) < 0.05 * wanted.stdev  # three standard errors
    assert abs(drawn.stdev / wanted.stdev - 1) < 0.04
    within = sum(abs(v - wanted.mean) < wanted.stdev for v in values) / len(values)
    assert within == pytest.approx(0.6827, abs=0.03)


@pytest.mark.parametrize("form", DOMAINS, ids=lambda f: next(iter(f)))
def test_perturbed_value_stays_in_the_domain(form):
    domains = {"x": Domain.model_validate(form)}
    rng, params = np.random.default_rng(0), {"x": value_at_share(domains["x"], 0.5)}
    for _ in range(100):
        params = perturb(params, domains, 0.25, rng)
        assert domains["x"].contains(params["x"])


@given(mean=st.integers(-99, 99), sd=st.integers(1, 99), z=st.integers(-400, 400))
@settings(max_examples=100)
def test_round_value_of_normal_domain_round_trips_exactly(mean, sd, z):
    domain = Domain.model_validate({"randn": [mean / 100, sd / 100]})
    value = round((100 * mean + z * sd) / 10_000, 4)
    assert decode(domain, encode(domain, value)) == value
    assert value_at_share(domain, share_of(domain, value)) == pytest.approx(value, abs=1e-9)


def test_ends_of_normal_distribution_decode_to_bounds():
    for form in ({"randn": []}, {"qrandn": [3.0, 1.0, 8.0]}):
        domain = Domain.model_validate(form)
        even = distribution(domain)
        assert decode(domain, even.low) == domain.lower == value_at_share(domain, 0.0)
        assert decode(domain, even.high) == domain.upper == value_at_share(domain, 1.0)


def test_agrees_compares_decoded_values():
    forms = {"a": {"qlograndint": [8, 128, 8]}, "b": {"randn": []}, "c": {"choice": ["x", [1]]}}
    space = OptunaSpace(make_spec(space=forms))
    sampled = {"a": 37, "b": 0.8, "c": "[1]"}
    params = space.params(sampled)
    assert params == {"a": 40, "b": pytest.approx(0.841621234), "c": [1]}
    assert space.agrees(sampled, params)
    for other in ({"a": 48}, {"b": 0.8416}, {"c": "x"}):
        assert not space.agrees(sampled, {**params, **other})
    assert not space.agrees({"a": 37}, params)


@pytest.mark.parametrize(("searcher", "warnings"), [("tpe", 1), ("random", 0)])
def test_searcher_is_named_whose_proposals_violate_constraints(
    tmp_path, caplog, searcher, warnings
):
    rare = {"space": {"x": {"uniform": [0.0, 1.0]}}, "constraints": ["x < 0.003"]}
    spec = make_spec(search={"name": searcher}, **rare)
    study = SweepStudy(tmp_path / "study.journal", "rare", spec)
    assert all(study.ask()[1]["x"] < 0.003 for _ in range(3))
    expected = "constraints: 20 proposals of the searcher violate them: t0000 is random"
    assert caplog.messages == [expected] * warnings


@pytest.mark.parametrize(
    "form",
    [
        {"randint": [0, 4]},
        {"qrandint": [8, 32, 8]},
        {"quniform": [0.0, 0.3, 0.1]},
        {"qloguniform": [0.1, 0.4, 0.1]},
        {"lograndint": [1, 5]},
    ],
)
def test_resampled_end_values_have_a_whole_step(form):
    """Of evenly spaced shares, each value gets what its step is of the scale."""
    domain = Domain.model_validate(form)
    count = 4000
    values = [value_at_share(domain, (i + 0.5) / count) for i in range(count)]
    step = 1 if domain.integer and domain.q is None else domain.q
    scale = np.log if domain.log else float
    low, high = scale(domain.lower - step / 2), scale(domain.high + step / 2)
    for value in set(values):
        share = (scale(value + step / 2) - scale(value - step / 2)) / (high - low)
        assert values.count(value) / count == pytest.approx(share, abs=0.002)
    assert len(set(values)) == 4


def test_random_proposals_depend_on_the_seed(tmp_path):
    """Those with which a narrow space is searched after the sampler's."""
    narrow = {"constraints": ["x > 0.999"], "search": {"name": "random"}}
    runs = [open_run(tmp_path / str(s), make_spec(seed=s, **narrow)) for s in (0, 1)]
    assert len({run.next_trial().config["x"] for run in runs}) == 2
