"""Replaces functions of torch and `transformers` for a while, where a simulation needs others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_INHERITED = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """In this block an attribute has another value.

    Args:
        owner: a class or a module.
        name: of an attribute that it has, or inherits.
        value: in place of it.
    """
    before = vars(owner).get(name, _INHERITED)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _INHERITED:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
