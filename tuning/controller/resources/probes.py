"""The fastest layouts that `tune probe` has found, in the storage, by the shape of a trial."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel

from results.paths import Storage
from results.storage.atomic import write_atomic
from search_spaces.layout import Layout
from search_spaces.spec.layout import LayoutSpec
from tuning.controller.resources.layouts import Choice, Sized


class Fastest(BaseModel):
    """The fastest layout of a shape, and the steps per second of all that ran, as written."""

    workers: int
    layout: LayoutSpec
    steps_per_second: dict[str, float]


class Probes:
    """Reads and writes them; a file for each shape and number of workers."""

    def __init__(self, storage: Path) -> None:
        self._folder = Storage(storage).probes

    @property
    def exist(self) -> bool:
        """Whether anything was measured."""
        return self._folder.is_dir()

    def add_to(self, choice: Choice) -> Choice:
        """The choice with the layouts that were measured to be the fastest."""
        if not self.exist:
            return choice
        counts = {one.ranks for one in choice.sized}
        found = {count: self._fastest(choice.sized, count) for count in counts}
        return replace(choice, fastest={n: layout for n, layout in found.items() if layout})

    def record(self, sized: Iterable[Sized], workers: int, rates: dict[Layout, float]) -> None:
        """Keep the fastest layout of so many workers.

        Args:
            sized: all layouts of the shape.
            workers: of the layouts that ran.
            rates: their steps per second.
        """
        best = max(rates, key=lambda layout: rates[layout])
        told = {layout.as_written(): rate for layout, rate in rates.items()}
        found = Fastest(workers=workers, layout=LayoutSpec.of(best), steps_per_second=told)
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self._file(sized, workers), found.model_dump_json(indent=1).encode())

    def _fastest(self, sized: Iterable[Sized], workers: int) -> Layout | None:
        file = self._file(sized, workers)
        if not file.is_file():
            return None
        return Fastest.model_validate_json(file.read_bytes()).layout.resolve(workers)

    def _file(self, sized: Iterable[Sized], workers: int) -> Path:
        """Named by what each layout of so many workers needs, which differs between shapes."""
        needs = {one.layout.as_written(): one.memory.peak for one in sized if one.ranks == workers}
        digest = hashlib.sha256(json.dumps(needs, sort_keys=True).encode()).hexdigest()
        return self._folder / f"{digest[:16]}.json"
