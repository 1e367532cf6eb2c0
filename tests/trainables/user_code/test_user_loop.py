from pathlib import Path

import pytest

from search_spaces.errors import UserError
from trainables.registry import resolve
from trainables.user_code.user_loop import UserLoop
from tuning.controller.preflight.trainables import worker_problems


@pytest.mark.parametrize("name", ["loud.py:loop", "my_package.loops:loop"])
def test_resolve_does_not_import_a_loop(project: Path, name: str) -> None:
    assert isinstance(resolve(name), UserLoop)


def test_any_configuration_is_valid(project: Path) -> None:
    config = {"anything": 1, "num_parameters": 3, "batch_size": 5, "micro_batch_size": 2}
    model = resolve("train.py:train_loop").Config
    assert model.problems(config) == []
    checked = model.model_validate(config)
    assert checked.checkpoint_bytes is None
    assert checked.halve_micro_batch(1) is None
    assert model.with_init_seed(config, 5) == model.resolve_paths(config, project) == config


def test_number_of_workers_is_fixed(project: Path) -> None:
    loop = resolve("train.py:train_loop")
    assert worker_problems(loop, {}, [3]) == []
    assert [path for path, _ in worker_problems(loop, {}, [1, 2])] == [()]


def test_seed_is_read_from_the_configuration(project: Path) -> None:
    loop = resolve("train.py:train_loop")
    assert loop.with_seed({"seed": 1}, 7) == {"seed": 7}
    with pytest.raises(UserError, match="takes no seed"):
        loop.with_seed({"lr": 1}, 7)


def test_trial_gets_its_seed_if_the_loop_reads_one(project: Path) -> None:
    (project / "seeded.py").write_text("def loop(config):\n    seed(config.get('seed', 0))\n")
    reads, ignores = resolve("seeded.py:loop"), resolve("train.py:train_loop")
    assert reads.seeded({"lr": 1}, 7) == reads.with_seed({"lr": 1}, 7) == {"lr": 1, "seed": 7}
    assert reads.seeded({"seed": 3}, 7) == {"seed": 3}
    assert ignores.seeded({"lr": 1}, 7) == {"lr": 1}


def test_source_is_the_script_and_what_it_imports(project: Path) -> None:
    assert set(resolve("train.py:train_loop").source()) == {"train.py", "my_helper.py"}
    assert set(resolve("my_package.loops:loop").source()) == {"loops.py"}
