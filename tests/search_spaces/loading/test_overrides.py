from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.search_spaces.examples import MINIMAL, SHIPPED

FILE = MINIMAL.replace("scheduler", "fixed: {epochs: 9}\nscheduler")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(FILE)
    return path


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(UserError) as error:
        load_sweep(path, overrides)
    return str(error.value)


def test_override_values_are_typed(path: Path) -> None:
    overrides = ("budget.trials=3", "budget.time=5m", "fixed.epochs=1e1", "resources.workers=2")
    loaded = load_sweep(path, overrides)
    assert (loaded.spec.budget.trials, loaded.spec.budget.time) == (3, 300)
    assert loaded.spec.fixed["epochs"] == 10.0
    assert loaded.spec.resources.workers == 2
    assert loaded.overrides == overrides


def test_override_sets_a_worker_range(path: Path) -> None:
    both = "resources.workers={min: 1, max: 4}", "resources.workers.min=2"
    found = load_sweep(path, both).spec.resources
    assert (found.min_workers, found.max_workers) == (2, 4)


def test_last_override_of_a_key_wins(path: Path) -> None:
    assert load_sweep(path, ["seed=1", "seed=2"]).spec.seed == 2


def test_override_replaces_a_domain(path: Path) -> None:
    loaded = load_sweep(path, ["space.lr={uniform: [0, 1]}", "space.model.layers.randint=[2, 3]"])
    domains = loaded.spec.domains()
    assert (domains["lr"].kind, domains["model.layers"].lower) == ("uniform", 2)
    assert loaded.source.where(("space", "lr", "uniform")) == "--set space.lr={uniform: [0, 1]}"
    assert loaded.source.where(("space", "model")) == "small.yaml:6"


def test_override_domain_replaces_a_fixed_value(path: Path) -> None:
    spec = load_sweep(path, ["space.epochs={randint: [1, 9]}"]).spec
    assert "epochs" in spec.domains()
    assert spec.fixed == {}


def test_override_constant_pins_a_parameter(path: Path) -> None:
    loaded = load_sweep(path, ["space.model.layers=2"])
    assert list(loaded.spec.space) == ["lr"]
    assert loaded.spec.fixed == {"epochs": 9, "model": {"layers": 2}}
    assert loaded.source.where(("fixed", "model", "layers")) == "--set space.model.layers=2"


@pytest.mark.parametrize("point", ["model.layers: 1", "model: {layers: 1}"])
def test_pinned_parameter_is_left_out_of_the_points(path: Path, point: str) -> None:
    path.write_text(f"{FILE}points: [{{lr: 0.001, {point}}}]\n")
    assert load_sweep(path).spec.points == [{"lr": 0.001, "model.layers": 1}]
    assert load_sweep(path, ["space.model.layers=2"]).spec.points == [{"lr": 0.001}]


def test_overrides_do_not_change_the_file(path: Path) -> None:
    load_sweep(path, ["space.lr=0.1"])
    assert path.read_text() == FILE
    assert "lr" in load_sweep(path).spec.domains()


BAD = [
    ("fixed.lr=0.1", "(small.yaml:5); use --set space.lr=0.1 to pin it"),
    ("space.lrr=0.1", "space.lrr: not in the space (did you mean 'lr'?)"),
    ("lr=0.1", "lr: unknown key (did you mean 'space.lr'?)"),
    ("trials=3", "trials: unknown key (did you mean 'budget.trials'?)"),
    ("trails=3", "trails: unknown key (did you mean 'budget.trials'?)"),
    ("max_t=3", "max_t: unknown key (did you mean 'scheduler.max_t'?)"),
    ("search.trials=3", "search.trials: unknown key (did you mean 'budget.trials'?)"),
    ("budgt.trials=3", "budgt.trials: unknown key (did you mean 'budget.trials'?)"),
    ("uri=x", "uri: unknown key (did you mean 'tracking.uri'?)"),
    ("name.x=1", "name holds a value, it has no keys"),
    ("budget.trial=3", "budget.trial: unknown key (did you mean 'trials'?)"),
    ("budget.trials=x", "budget.trials: must be a whole number >= 1, got 'x'"),
    ("seed", "expected key=value, like --set budget.trials=3"),
    ("a..b=1", "expected key=value, like --set budget.trials=3"),
    ("name.first=x", "name holds a value, it has no keys"),
    ("name=[x", "not valid YAML: expected ',' or ']'"),
    ("fixed.x=!!python/name:os.x ''", "tag 'python/name:os.x' is not allowed"),
    ("fixed.x=${HOME}", "monitoring.token, notify.webhook, storage, tracking.uri only"),
    ("space.lr={uniform: [1, 0]}", "space.lr: uniform needs lower < upper, got [1.0, 0.0]"),
    ("space.lr.loguniform=[0, 1]", "space.lr: loguniform needs lower > 0, got 0.0"),
    ("space.lr=[1, 2]", "space.lr: a domain is expected, like {uniform: [0, 1]}, got [1, 2]"),
]


@pytest.mark.parametrize(("override", "text"), BAD, ids=[override for override, _ in BAD])
def test_bad_override_is_named_in_the_message(path: Path, override: str, text: str) -> None:
    [line] = refusal(path, override).splitlines()
    assert line.startswith(f"--set {override}: ")
    assert text in line


def test_mistakes_of_file_and_overrides_are_reported_together(path: Path) -> None:
    path.write_text(FILE.replace("max_t", "max_time"))
    lines = refusal(path, "seed=-1", "nonsense", "search.name=gird").splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "small.yaml:9",
        *("--set seed=-1", "--set nonsense", "--set search.name=gird"),
    ]


def test_load_sweep_is_deterministic(path: Path) -> None:
    first, second = (load_sweep(path, ["seed=3"]) for _ in range(2))
    assert first == second


def test_override_pins_an_option_with_its_parameters() -> None:
    shipped = SHIPPED[0].with_name("conditional.yaml")
    spec = load_sweep(shipped, ["space.optimizer=sgd", "space.dropout=0.2"]).spec
    assert spec.domains()["optimizer"].categories == ("sgd",)
    assert "momentum" in spec.domains()
    assert "weight_decay" not in spec.domains()
    assert spec.fixed["dropout"] == 0.2
    inside = load_sweep(shipped, ["space.optimizer.choice.sgd.momentum=0.9"]).spec
    assert "momentum" not in inside.domains()
    params = {"optimizer": "sgd", "learning_rate": 0.1, "num_layers": 1, "hidden_units": 32}
    assert inside.nest(params)["momentum"] == 0.9
    with pytest.raises(UserError, match=r"has no such option \(did you mean 'sgd'\?\)"):
        load_sweep(shipped, ["space.optimizer=sdg"])


def test_only_searched_parameter_can_be_pinned(path: Path) -> None:
    spec = load_sweep(path, ["space={lr: {uniform: [0, 1]}}", "space.lr=0.02"]).spec
    assert list(spec.domains()["lr"].categories) == [0.02]


def test_named_section_as_text_takes_more_keys(path: Path) -> None:
    path.write_text(FILE.replace("scheduler: {max_t: 9}", "scheduler: asha"))
    loaded = load_sweep(path, ["scheduler.max_t=4", "search=random"])
    scheduler = loaded.spec.scheduler
    assert (scheduler.name, scheduler.max_t, loaded.spec.search.name) == ("asha", 4, "random")
    assert "scheduler.max_t: asha needs max_t" in refusal(path)
    assert "scheduler.name: must be" in refusal(path, "scheduler=ahsa")
