import pytest

from search_spaces.errors import UserError
from search_spaces.loading.sweep_file import load_sweep
from tests.tuning.simulate import make_spec, new_sweep, run_sweep
from tuning.controller.sweep_dir.amend import amend_sweep
from tuning.search.auto import choose_scheduler

AUTO = {"grace_period": 1, "max_t": 9}
LOOP = "def train(config): report(config)\n"

OWN = """
from trainables.base import Trainable

class Own(Trainable):
    def train(self, config, worker): ...

    def evaluate(self, config, weights, split, cache): ...
"""


def freeze(folder, **changes):
    spec = make_spec(scheduler=AUTO, tracking={"name": "none"}, **changes)
    return new_sweep(spec, folder)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "asha_promote"),
        ({"metric": ["a", "b"]}, "asha_promote"),
        ({"replicates": 3}, "asha"),
        ({"trainable": "loop.py:train"}, "asha"),
        ({"trainable": "loop.py:Own"}, "asha_promote"),
    ],
)
def test_auto_scheduler_chooses_by_what_can_pause(tmp_path, monkeypatch, changes, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop.py").write_text(LOOP + OWN)
    choice = choose_scheduler(make_spec(scheduler=AUTO, **changes))
    assert choice.name == name
    assert str(choice).startswith(f"{name} (auto: ")


def test_named_scheduler_is_kept():
    choice = choose_scheduler(make_spec(scheduler={**AUTO, "name": "hyperband"}))
    assert str(choice) == "hyperband (as the sweep file says)"


def test_auto_scheduler_refuses_missing_trainable(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        choose_scheduler(make_spec(scheduler=AUTO, trainable="gone.py:train"))


def test_spec_file_records_auto_scheduler_and_trials_pause(tmp_path):
    paths = freeze(tmp_path)
    said = paths.spec.read_text()
    assert "# scheduler asha_promote (auto: its trials can pause" in said
    spec = load_sweep(paths.spec).spec
    assert (spec.scheduler.name, spec.scheduler.max_t) == ("asha_promote", 9)
    run = run_sweep(paths.root, spec)
    assert any(r.reason.startswith("asha_promote at step") for r in run.records.values())


def test_extended_sweep_keeps_auto_scheduler(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "loop.py"
    script.write_text(LOOP)
    paths = freeze(tmp_path, trainable="loop.py:train")
    assert amend_sweep(paths, "+4", None, ()) is not None
    assert load_sweep(paths.spec).spec.scheduler.name == "asha"
    assert paths.spec.read_text().count("# scheduler asha (auto: a Ray Train loop") == 1
    amend_sweep(paths, None, None, ("scheduler.name=median",))
    amend_sweep(paths, None, None, ("scheduler.name=auto",))
    assert load_sweep(paths.spec).spec.scheduler.name == "asha"
