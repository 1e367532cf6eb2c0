"""The functions of the modules that hold a trainable's code, imported when they are needed."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_NEEDED_FOR = {
    "initial": ", which averaging methods such as ties need",
    "client": ", which federated training needs",
    "export_hf": ", which writes the transformers form",
}


def find_function(modules: Iterable[str], name: str, owner: str) -> Callable[..., Any]:
    """The function of that name in the first module that has one; imports that module.

    Args:
        modules: full names.
        name: of the function.
        owner: of the modules, for messages.

    Raises:
        NotImplementedError: no module has one.
    """
    for module in modules:
        if name in functions_of(module):
            found: Callable[..., Any] = getattr(import_module(module), name)
            return found
    raise NotImplementedError(f"{owner} has no {name}(){_NEEDED_FOR.get(name, '')}")


@functools.cache
def functions_of(module: str) -> frozenset[str]:
    """Names of a module's top-level functions, read from its source without importing it.

    Raises:
        ModuleNotFoundError: there is no such module, or it has no source.
    """
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module named '{module}'", name=module)
    tree = ast.parse(Path(spec.origin).read_bytes())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
