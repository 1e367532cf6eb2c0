from pathlib import Path

import pytest

from search_spaces.errors import UserError
from trainables.user_code.loader import canonical, find, load, locate
from trainables.user_code.user_trainer import refuse_fit


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("train.py:train_lop", "has no function 'train_lop' .did you mean 'train_loop'?"),
        ("trian.py:train_loop", "no such file .did you mean 'train.py'?"),
        ("broken.py:loop", "broken.py:1: "),
        ("my_package.lops:loop", "no such module"),
        ("train.py:later", "later.. is async"),
        ("my_package.loops:lop", "has no function 'lop' .did you mean 'loop'?"),
    ],
)
def test_find_refuses_a_wrong_name(project: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        find(name)


def test_locate_tells_classes_from_functions_without_importing(project: Path) -> None:
    (project / "own.py").write_text("raise RuntimeError('ran')\nclass Own: ...\n")
    assert locate("own.py:Own") == (project / "own.py", True)
    assert locate("loud.py:loop") == (project / "loud.py", False)
    assert locate("my_package.loops:loop") == (project / "my_package" / "loops.py", False)


def test_load_imports_a_script_and_its_neighbours(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = canonical("train.py:product")
    assert name == f"{project / 'train.py'}:product"
    monkeypatch.chdir("/")
    assert load(name)({"x": 2}) == 6
    with pytest.raises(UserError, match="is neither a function nor a class"):
        load(f"{project / 'train.py'}:LIMIT")


UNGUARDED = """
from ray.train.torch import TorchTrainer


def loop(config): ...


getattr(TorchTrainer(loop), "fit")()  # which no look at the source tells from other calls
"""


def test_fit_on_import_is_an_error_instead_of_a_wait_for_ever(project: Path) -> None:
    (project / "unguarded.py").write_text(UNGUARDED)
    with pytest.raises(ImportError, match="under if __name__ == '__main__'"), refuse_fit():
        load("unguarded.py:loop")
