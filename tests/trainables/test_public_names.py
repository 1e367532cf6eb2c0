"""What users import: the names at the top of the package, and those of version 0.1.0."""

import ast
import inspect
from pathlib import Path

import pytest
from trainables.deprecation import MODULES

import trainables
from tests.trainables.local import make_worker
from trainables.base import Trainable
from trainables.config import TrainableConfig

OLD_IMPORTS = """
from trainables.base import Split, Trainable, TrainableConfig
from trainables.worker import Answer, Worker
from trainables.sampling import Sampler
from trainables.saving import together
from trainables.seeding import own_world
from trainables.state import copy_weights
from trainables.tensor_file import write_tensors
from trainables.training import copy_progress, load_progress, parallel, weights_digest
"""


def test_public_names_are_those_for_type_checkers() -> None:
    tree = ast.parse(inspect.getsource(trainables))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    names = [
        a.name for node in checked.body if isinstance(node, ast.ImportFrom) for a in node.names
    ]
    assert sorted(names) == trainables.__all__
    assert all(getattr(trainables, name) is not None for name in names)
    assert trainables.Trainable is Trainable


def test_old_modules_warn_and_give_the_new_names() -> None:
    found: dict[str, object] = {}
    with pytest.warns(DeprecationWarning, match="is now") as warned:
        exec(OLD_IMPORTS, found)
    assert found["together"] is trainables.in_parallel
    assert found["own_world"] is trainables.isolated_rng
    assert found["parallel"] is trainables.data_parallel
    assert "trainables.saving.together is now trainables.in_parallel" in {
        str(w.message) for w in warned
    }
    assert {str(w.message).rpartition(" is now ")[0].rpartition(".")[0] for w in warned} == set(
        MODULES
    )


def test_old_methods_of_a_worker_warn(tmp_path: Path) -> None:
    worker = make_worker(tmp_path)
    with pytest.warns(DeprecationWarning, match="trained_on is now log_dataset"):
        worker.trained_on("digest")  # type: ignore[attr-defined]
    with pytest.warns(DeprecationWarning, match="beat is now heartbeat"):
        worker.beat()  # type: ignore[attr-defined]


def test_old_hooks_of_a_configuration_take_effect() -> None:
    with pytest.warns(DeprecationWarning, match="is now") as warned:

        class Old(TrainableConfig):
            batch_size: int = 8
            micro_batch_size: int | None = None
            init_seed: int = 0

            def shrunk(self, workers: int) -> dict[str, int] | None:
                return None if workers == 3 else super().shrunk(workers)

            @classmethod
            def initialised(cls, config: dict[str, int], seed: int) -> dict[str, int]:
                return {**config, "init_seed": -seed}

    assert [str(w.message) for w in warned] == [
        "Old.initialised is now Old.with_init_seed",
        "Old.shrunk is now Old.halve_micro_batch",
    ]
    assert Old.with_init_seed({}, 5) == {"init_seed": -5}
    assert Old().halve_micro_batch(3) is None
    with pytest.warns(DeprecationWarning, match="shrunk is now halve_micro_batch"):
        assert Old().halve_micro_batch(2) == {"micro_batch_size": 2}
