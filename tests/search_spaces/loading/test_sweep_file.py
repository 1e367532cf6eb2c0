from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from search_spaces.domains.domain import Domain
from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import LoadedSweep, dump_sweep, load_sweep
from search_spaces.spec.sweep import SweepSpec
from tests.search_spaces.examples import MINIMAL, SHIPPED


def load(tmp_path: Path, text: str, *overrides: str) -> LoadedSweep:
    path = tmp_path / "small.yaml"
    path.write_text(text, encoding="utf-8")
    return load_sweep(path, overrides)


def test_spec_has_defaults(tmp_path: Path) -> None:
    spec = load(tmp_path, MINIMAL).spec
    assert (spec.mode, spec.storage, spec.seed, spec.fixed) == ("min", "./sweeps", 0, {})
    assert (spec.search.name, spec.search.startup_trials) == ("auto", 10)
    assert (spec.scheduler.name, spec.scheduler.time_attr) == ("auto", "step")
    assert (spec.scheduler.grace_period, spec.scheduler.reduction_factor) == (1, 3)
    assert (spec.resources.workers, spec.resources.cpus_per_worker) == (1, 1)
    assert (spec.resources.gpus_per_worker, spec.resources.concurrency) == ("auto", "auto")
    assert spec.resources.isolation == "auto"
    assert (spec.checkpoint.every, spec.checkpoint.keep) == (1, 2)
    assert (spec.failure.max_retries, spec.failure.start_timeout) == (2, 120)
    assert (spec.tracking.name, spec.tracking.uri) == ("mlflow", None)


def test_no_scheduler_stops_no_trial(tmp_path: Path) -> None:
    spec = load(tmp_path, MINIMAL.replace("scheduler: {max_t: 9}\n", "scheduler:\n")).spec
    assert spec.scheduler.name == "none"
    frozen = dump_sweep(spec)
    assert load(tmp_path, frozen).spec == spec
    with pytest.raises(UserError, match="auto needs max_t"):
        load(tmp_path, MINIMAL.replace("{max_t: 9}", "{grace_period: 2}"))


def test_domains_are_flat_and_in_file_order(tmp_path: Path) -> None:
    domains = load(tmp_path, MINIMAL).spec.domains()
    assert list(domains) == ["lr", "model.layers"]
    assert domains["lr"].kind == "loguniform"


def test_nest_merges_parameters_into_fixed(tmp_path: Path) -> None:
    spec = load(tmp_path, MINIMAL + "fixed: {model: {units: [8, 8]}, epochs: 3}\n").spec
    config = spec.nest({"lr": 0.1, "model.layers": 2})
    assert config == {"model": {"units": [8, 8], "layers": 2}, "epochs": 3, "lr": 0.1}
    config["model"]["units"].append(8)
    assert spec.fixed["model"] == {"units": [8, 8]}


def test_grid_sets_its_number_of_trials(tmp_path: Path) -> None:
    head, _, tail = MINIMAL.partition("space:")
    space = "space: {a: {grid_search: [1, 2, 3]}, b: {grid_search: [x, y]}}\n"
    assert "budget" in tail
    spec = load(tmp_path, f"{head}{space}scheduler: {{max_t: 9}}\n").spec
    assert spec.budget.trials == 6
    assert list(spec.grid()) == ["a", "b"]


def test_values_are_yaml_1_2(tmp_path: Path) -> None:
    fixed = "fixed: {a: 1e-5, b: no, c: 012, d: 2024-01-01, e: ~, f: '1', g: 0x10, h: 1:30}\n"
    assert load(tmp_path, MINIMAL + fixed).spec.fixed == {
        **{"a": 1e-5, "b": "no", "c": 12, "d": "2024-01-01"},
        **{"e": None, "f": "1", "g": 16, "h": "1:30"},
    }


def test_aliases_of_plain_data_are_expanded(tmp_path: Path) -> None:
    spec = load(tmp_path, MINIMAL + "fixed: {a: &sizes [1, 2], b: *sizes}\n").spec
    assert spec.fixed == {"a": [1, 2], "b": [1, 2]}
    assert "&" not in dump_sweep(spec)


def test_empty_sections_take_their_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL + "resources:\nfixed:\n").spec == load(tmp_path, MINIMAL).spec


def test_where_gives_file_and_line(tmp_path: Path) -> None:
    choice = "  beta:\n    choice:\n      - 1\n      - 2\n"
    source = load(tmp_path, MINIMAL.replace("scheduler", f"{choice}scheduler")).source
    assert source.where(("space", "model", "layers")) == "small.yaml:7"
    assert source.where(("space", "beta", "choice", 1)) == "small.yaml:11"
    assert source.where(("budget", "time")) == "small.yaml:13"
    assert source.where(("nowhere",)) == "small.yaml:1"


@pytest.mark.parametrize("path", SHIPPED, ids=[path.name for path in SHIPPED])
def test_shipped_file_round_trips(path: Path, tmp_path: Path) -> None:
    spec = load_sweep(path).spec
    reloaded = load(tmp_path, dump_sweep(spec)).spec
    assert reloaded == spec
    assert spec.name == path.stem
    assert list(reloaded.domains()) == list(spec.domains())


def test_loaded_sweep_survives_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s3cret")
    loaded = load(tmp_path, MINIMAL + "tracking: {uri: 'http://u:${SECRET}@host'}\n")
    monkeypatch.delenv("SECRET")
    reloaded = pickle.loads(pickle.dumps(loaded))
    assert reloaded == loaded
    assert reloaded.spec.tracking.uri == "http://u:s3cret@host"
    assert "s3cret" not in dump_sweep(reloaded.spec)


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
text = st.text(min_size=1, max_size=30).filter(lambda v: "${" not in v and v[0] != "=")
keys = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
fixed = st.dictionaries(keys.map("f_".__add__), plain, max_size=4)


_KINDS = ["uniform", "loguniform", "randint", "qlograndint", "randn", "qrandn", "choice"]


@st.composite
def domains(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(_KINDS))
    if kind == "choice":
        return {kind: draw(st.lists(text | st.floats(-1e9, 1e9), min_size=1, unique=True))}
    if kind in ("randn", "qrandn"):
        mean, sd = draw(st.floats(-1e9, 1e9)), draw(st.floats(1e-3, 1e9))
        return {kind: [mean, sd, sd / draw(st.integers(1, 9))][: 2 + (kind == "qrandn")]}
    if kind == "qlograndint":
        low, more, q = (draw(st.integers(1, 1000)) for _ in range(3))
        return {kind: [low * (q + 1), (low + more) * (q + 1), q + 1]}
    number = st.integers(1, 2**40) if kind == "randint" else st.floats(1e-300, 1e99)
    return {kind: sorted(draw(st.lists(number, min_size=2, max_size=2, unique=True)))}


spaces = st.recursive(
    st.dictionaries(keys.map("s_".__add__), domains(), min_size=1, max_size=3),
    lambda inner: st.dictionaries(keys.map("g_".__add__), inner, min_size=1, max_size=2),
    max_leaves=4,
)


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@example(
    name="folded",  # long escaped text, which would not round-trip if lines were folded
    description='00"\x1f\x1f\x1f\x1f\x06\U00010000 0' + " \x7f 0" * 40,
    space={"lr": {"choice": ["00000\x1f\x1f\x1f\x7f", "\x85 \u2028 \ufeff", "1e-5", "no", "~"]}},
    fixed={"f_": {"1": None, "": {}, "<<": []}},
    uri=None,
)
@given(name=names, description=st.none() | text, space=spaces, fixed=fixed, uri=st.none() | text)
def test_spec_round_trips(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    description: str | None,
    space: dict[str, Any],
    fixed: dict[str, Any],
    uri: str | None,
) -> None:
    spec = SweepSpec.model_validate(
        {
            **{"name": name, "description": description, "trainable": "t", "metric": "m"},
            **{"space": space, "fixed": fixed, "tracking": {"uri": uri}},
            **{"scheduler": {"max_t": 3}, "budget": {"time": "1h30m"}},
        }
    )
    reloaded = load(tmp_path_factory.mktemp("round"), dump_sweep(spec)).spec
    assert reloaded == spec
    assert list(reloaded.domains().values()) == list(spec.domains().values())
    assert all(isinstance(domain, Domain) for domain in reloaded.domains().values())


def test_workers_are_a_number_or_a_range(tmp_path):
    given = "resources:\n  workers: {min: 1, max: 4, grow_after: 2m}\n"
    found = load(tmp_path, MINIMAL + given).spec.resources
    assert (found.min_workers, found.max_workers, found.grow_after_s) == (1, 4, 120)
    assert found.elastic
    fixed = load(tmp_path, MINIMAL + "resources: {workers: 3}\n").spec.resources
    assert (fixed.min_workers, fixed.max_workers, fixed.elastic) == (3, 3, False)


@pytest.mark.parametrize(
    "value", ["0", "{min: 3, max: 2}", "{max: 0}", "{min: 1}", "{mix: 1, max: 2}", "[1, 2]"]
)
def test_invalid_workers_are_refused(tmp_path, value):
    with pytest.raises(
        UserError, match=r"resources.workers: must be a whole number from 1 to 10000, or like"
    ):
        load(tmp_path, MINIMAL + f"resources:\n  workers: {value}\n")
