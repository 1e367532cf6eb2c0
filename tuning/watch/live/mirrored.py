"""A sweep of another machine, read from its mirror in object storage."""

from __future__ import annotations

import time
from pathlib import Path

from results.paths import SweepPaths
from results.storage.object_store import open_object_store
from results.sweep_folder.copies.mirror import PERIOD_S, has_driver
from results.sweep_folder.copies.restore import fetch_records, mirrored_records
from tuning.watch.live.feed import RecordSource

_REFRESH_S = PERIOD_S / 2
_REPLACED = ("trial.json", "state.json")
"""Files that may change without another size."""


class MirroredSource(RecordSource):
    """Copies the records of a mirrored sweep into a folder of its own, and the new ones later.

    Args:
        address: of the sweep, such as `s3://bucket/prefix/llm`.
        folder: for the copy.

    Raises:
        UserError: there is no sweep, or the object storage cannot be reached.
    """

    def __init__(self, address: str, folder: Path) -> None:
        self._objects = open_object_store(address)
        name = self._objects.address.rpartition("/")[2]
        mirror = f"{self._objects.address} is a mirror"
        only = f"{mirror}: change the sweep on the machine that drives it"
        super().__init__(SweepPaths(folder / name), only)
        self._sizes: dict[str, int] = {}
        self._next = 0.0
        self._driver: str | None = None
        self.refresh()

    def refresh(self) -> None:
        """Fetch what is new, if the mirror may have something new."""
        if time.monotonic() < self._next:
            return
        with self._objects.explained(files=False):
            driver = "a driver" if has_driver(self._objects) else None
            self._fetch(always=bool(self._driver or driver))
            self._driver = driver  # once the last records of one that has ended are here
        self._next = time.monotonic() + _REFRESH_S

    def driver(self) -> str | None:
        """Whether the driver's heartbeat in the mirror is fresh."""
        return self._driver and f"{self._driver} on another machine"

    def _fetch(self, always: bool) -> None:
        sizes, before = mirrored_records(self._objects), self._sizes
        keys = [
            key
            for key, size in sizes.items()
            if before.get(key) != size or (always and key.endswith(_REPLACED))
        ]
        # a record after its reports, as the mirror has them: it says how many there are
        records = {key for key in keys if key.endswith("trial.json")}
        for part in ([key for key in keys if key not in records], records):
            fetch_records(self._objects, part, self.paths.root)
        self._sizes = sizes
