"""The keys that `--set` takes, for the completion of the shell."""

from __future__ import annotations

from search_spaces.nested import flattened
from search_spaces.spec.base import Section
from search_spaces.spec.sweep import SweepSpec


def known_keys(spec: SweepSpec | None = None) -> list[str]:
    """Dotted keys of the sections, and of the parameters of a sweep."""
    keys = []
    for name, field in SweepSpec.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, Section):
            keys += [f"{name}.{key}" for key in section.model_fields]
        elif name not in ("space", "fixed"):
            keys.append(field.alias or name)
    if spec is not None:
        keys += [f"space.{name}" for name in spec.domains()]
        keys += [f"fixed.{name}" for name in flattened(spec.fixed)]
    return keys
