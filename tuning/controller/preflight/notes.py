"""What `tune plan` and `tune run` say of a file that they take, but that may mean another thing."""

from __future__ import annotations

import re
from collections.abc import Iterator

from search_spaces.loading.sweep_file import LoadedSweep
from tuning.controller.preflight.relative_paths import warn_relative_paths

_NAME = re.compile(r"([\w/.-]+)(?:\\s[*+?]?|\s)*[=:]")
"""A pattern that begins with a name and a separator."""


def file_notes(loaded: LoadedSweep) -> list[str]:
    """One line for each."""
    return [*warn_relative_paths(loaded), *_warn_patterns(loaded)]


def _warn_patterns(loaded: LoadedSweep) -> Iterator[str]:
    """Patterns of metrics whose names are also found within longer ones."""
    for name, pattern in loaded.spec.report_from.stdout.items():
        if begins := _NAME.match(pattern):
            yield (
                f"report_from.stdout.{name}: '{pattern}' is also found in x{begins[1]}=1; "
                r"begin it with \b to find whole names only"
            )
