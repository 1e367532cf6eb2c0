"""What users import: the names at the top of the package."""

import ast
import inspect

import trainables
from trainables.base import Trainable


def test_public_names_are_those_for_type_checkers() -> None:
    tree = ast.parse(inspect.getsource(trainables))
    checked = next(node for node in tree.body if isinstance(node, ast.If))
    names = [
        a.name for node in checked.body if isinstance(node, ast.ImportFrom) for a in node.names
    ]
    assert sorted(names) == trainables.__all__
    assert all(getattr(trainables, name) is not None for name in names)
    assert trainables.Trainable is Trainable
