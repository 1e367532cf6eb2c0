"""Collects the mistakes in one field of a sweep file, so that all are reported at once."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from search_spaces.nested import KeyPath

MAX_ERRORS = 100
"""Mistakes of a field after which no more are looked for: each takes time to suggest a name."""


class FieldErrors:
    """Mistakes in one field; pydantic reports each at its own path."""

    def __init__(self) -> None:
        self._found: list[InitErrorDetails] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    @property
    def full(self) -> bool:
        """Whether there are enough mistakes for one answer."""
        return len(self._found) >= MAX_ERRORS

    def add(
        self, path: KeyPath, text: str, value: object = None, *, section: str | None = None
    ) -> None:
        """Record a mistake at a path below the field, or below another `section` of the file."""
        context: dict[str, Any] = {"text": text}
        if section is not None:
            context["path"] = (section, *path)
        error = PydanticCustomError("plain", "{text}", context)
        self._found.append(InitErrorDetails(type=error, loc=path, input=value))

    def raise_if_any(self, title: str) -> None:
        """Raise pydantic's `ValidationError` if a mistake was recorded."""
        if self._found:
            raise ValidationError.from_exception_data(title, self._found)
