"""Reads YAML files of other programs, with line numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from search_spaces.errors import UserError


def read_mapping(path: Path) -> Mapping[str, Any]:
    """The content of a file.

    Raises:
        UserError: it is not YAML, or not a mapping.
    """
    try:
        data = YAML(typ="rt", pure=True).load(path.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as e:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(e).split())[:200]}") from None
    if not isinstance(data, Mapping):
        raise UserError(f"{path}: not a mapping of keys")
    return data


def line_of(mapping: Any, key: str) -> int:
    """The line of a key, from 1."""
    return int(mapping.lc.key(key)[0]) + 1
