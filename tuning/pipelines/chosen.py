"""Which stages of a pipeline a command runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from search_spaces.errors import UserError, suggest


@dataclass(frozen=True)
class Chosen:
    """The stages to run, by name; without any of the three all.

    Attributes:
        stages: only these.
        begin, until: only those from one to another, in the order in which they run.
    """

    stages: Sequence[str] = ()
    begin: str | None = None
    until: str | None = None

    def among(self, names: Sequence[str]) -> list[str]:
        """The chosen ones of all stages.

        Raises:
            UserError: there is no such stage.
        """
        options = {"--begin": self.begin, "--until": self.until}
        given = [("--stages", name) for name in self.stages]
        for option, name in (*given, *((o, n) for o, n in options.items() if n)):
            if name not in names:
                raise UserError(f"{option} {name}: no such stage{suggest(name, names)}")
        first = names.index(self.begin) if self.begin else 0
        last = names.index(self.until) if self.until else len(names) - 1
        return [n for n in names[first : last + 1] if not self.stages or n in self.stages]


ALL = Chosen()
