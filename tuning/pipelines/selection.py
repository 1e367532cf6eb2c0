"""Which stages of a pipeline a command runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from search_spaces.errors import UserError, suggest


@dataclass(frozen=True)
class StageSelection:
    """The stages to run, by name; without any of the three all.

    Attributes:
        stages: only these.
        begin, until: only those from one to another, in the order in which they run.
    """

    stages: Sequence[str] = ()
    begin: str | None = None
    until: str | None = None

    @classmethod
    def parse(cls, stages: str | None, begin: str | None, until: str | None) -> Self:
        """The stages that the options of a command name; `stages` are separated by commas."""
        names = [name.strip() for name in (stages or "").split(",") if name.strip()]
        return cls([] if names == ["all"] else names, begin, until)

    @property
    def arguments(self) -> list[str]:
        """The options of a command that mean the same."""
        given = {"--stages": ",".join(self.stages), "--begin": self.begin, "--until": self.until}
        return [f"{option}={value}" for option, value in given.items() if value]

    def select(self, names: Sequence[str]) -> list[str]:
        """The selected ones of all stages.

        Raises:
            UserError: there is no such stage.
        """
        for option, _, value in (one.partition("=") for one in self.arguments):
            for name in value.split(","):
                if name not in names:
                    raise UserError(f"{option} {name}: no such stage{suggest(name, names)}")
        first = names.index(self.begin) if self.begin else 0
        last = names.index(self.until) if self.until else len(names) - 1
        return [n for n in names[first : last + 1] if not self.stages or n in self.stages]
