"""Types of Parquet columns; pyarrow is imported when a column is looked at."""

from __future__ import annotations

from typing import Any


def is_text(kind: Any) -> bool:
    """Whether a column of an Arrow type holds texts."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))
