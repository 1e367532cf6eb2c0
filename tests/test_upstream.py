"""The private parts of Ray, Optuna and torch that we use are those of the installed versions."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from results import upstream as results_upstream
from trainables import upstream as trainables_upstream
from tuning import upstream as tuning_upstream

ROOT = Path(__file__).parents[1]
PRIVATE = results_upstream.PRIVATE | trainables_upstream.PRIVATE | tuning_upstream.PRIVATE
MAY_USE_RAY = (
    "trainables/launch/",
    "trainables/user_code/ray_train/",
    "tuning/cluster/",
    "tuning/controller/ray_tune/",
)
OURS = ("search_spaces", "results", "trainables", "tuning")
PUBLIC = {"_exit"}
"""Of `os`: documented, in spite of its name."""


def resolve(key: str) -> Any:
    module, _, path = key.partition(":")
    found = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return getattr(getattr(found, "__ray_metadata__", None), "modified_class", found)


def signature(found: Any) -> str:
    """The names, kinds and defaults of the parameters, without the one that Ray's tracing adds."""
    known = inspect.signature(found)
    own = [p for p in known.parameters.values() if p.name != "_ray_trace_ctx"]
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in own]
    return str(known.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def attributes(owner: type) -> set[str]:
    """Names that the classes of the MRO have, or assign to `self`."""
    names = set(dir(owner))
    for cls in (cls for cls in owner.__mro__ if cls.__module__ != "builtins"):
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        names |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        }
    return names


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("key", "expected"), PRIVATE.items())
def test_private_part_is_installed_as_expected(key: str, expected: str) -> None:
    if expected != "attribute":
        assert signature(resolve(key)) == expected
        return
    module, _, path = key.partition(":")
    owner, _, name = path.rpartition(".")
    holder = resolve(f"{module}:{owner}") if owner else import_module(module)
    # hasattr: torch.ops lists only what was used before
    assert hasattr(holder, name) or name in attributes(holder)


def sources() -> list[Path]:
    return [file for package in OURS for file in sorted((ROOT / package).rglob("*.py"))]


def private_imports(tree: ast.Module) -> Iterator[str]:
    """`module:name` of what is imported from a private module, or under a private name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if "._" in alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for alias in node.names:
                if re.search(r"[.:]_", f"{node.module}:{alias.name}"):
                    yield f"{node.module}:{alias.name}"


def private_attributes(tree: ast.Module) -> Iterator[str]:
    """Private names that are read from or written to another object than `self`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or not re.match(r"_(?!_)", node.attr):
            continue
        is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        is_super = isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()"
        if not is_own and not is_super:
            yield node.attr


def is_listed(imported: str) -> bool:
    module = f"{imported.replace(':', '.')}:"
    return any(k == imported or k.startswith((f"{imported}.", module)) for k in PRIVATE)


@pytest.mark.parametrize("file", sources(), ids=lambda file: str(file.relative_to(ROOT)))
def test_source_uses_only_listed_private_parts(file: Path) -> None:
    tree = ast.parse(file.read_bytes())
    imports = list(private_imports(tree))
    assert [name for name in imports if not is_listed(name)] == []
    listed = {re.split(r"[.:]", key)[-1] for key in PRIVATE} | PUBLIC
    assert set(private_attributes(tree)) <= listed
    if not str(file.relative_to(ROOT)).startswith(MAY_USE_RAY):
        assert [name for name in imports if name.startswith("ray.")] == []
