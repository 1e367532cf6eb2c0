"""The folder of a sweep, as a command needs it: found, trusted, locked, repaired and verified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from results.paths import SweepPaths
from results.storage.fencing import Owner
from results.storage.sharing import refuse_outside_links
from results.sweep_folder import repair
from results.sweep_folder.folder import (
    SessionTime,
    find_sweep,
    record_session_time,
    separate_copy,
)
from results.sweep_folder.lock import acquire_lock, refuse_if_driven
from results.sweep_folder.trust import Trust, require_trust, sign_folder
from search_spaces.spec.sweep import SweepSpec

if TYPE_CHECKING:
    from results.sweep_folder.copies.mirror import NullMirror, RecordMirror


@dataclass(frozen=True)
class SweepFolder:
    """The folder of a sweep that was found."""

    paths: SweepPaths

    @classmethod
    def open(
        cls,
        sweep: str,
        storage: str | None,
        *,
        writes: bool = False,
        drives: bool = False,
        trust: Trust | None = None,
    ) -> Self:
        """Find a sweep.

        Args:
            sweep: its name, its folder, or, to drive it, its address in object storage.
            storage: as on the command line.
            writes: the caller writes into the folder, so no link may lead out of it.
            drives: the caller drives the sweep, so no other process may.
            trust: for a caller that runs the sweep's code or contacts its addresses; see
                `require_trust`.

        Raises:
            UserError: there is no such sweep, another process drives it, or it is not trusted.
        """
        if drives and "://" in sweep:
            from results.sweep_folder.copies.restore import restore_sweep

            sweep = str(restore_sweep(sweep, storage).root)
        paths = find_sweep(sweep, storage)
        if writes:
            refuse_outside_links(paths.root)
        if drives:
            refuse_if_driven(paths.lock)
        if trust is not None:
            require_trust(paths, trust)
        return cls(paths)

    @contextmanager
    def own(self, spec: SweepSpec, commit: str = "") -> Iterator[OwnedFolder]:
        """Own a trusted sweep while the block runs: lock, repair, sign, mirror, count seconds.

        Args:
            spec: of the sweep.
            commit: of the code that runs; empty if it is not known.

        Raises:
            UserError: another driver holds the sweep, or its folder cannot be repaired.
        """
        from results.sweep_folder.copies.mirror import mirror_records

        with ExitStack() as stack:
            fence = stack.enter_context(acquire_lock(self.paths.lock))
            done = [*repair.repair_spec(self.paths), *repair.repair_state(self.paths)]
            done += separate_copy(self.paths)
            sign_folder(self.paths)
            mirror = stack.enter_context(mirror_records(self.paths, spec, fence))
            time = stack.enter_context(record_session_time(self.paths, fence, commit))
            yield OwnedFolder(self.paths, fence, mirror, time, done)


@dataclass(frozen=True)
class OwnedFolder:
    """The folder of a sweep that this process drives.

    Attributes:
        time: of this session and those before.
        repaired: one line per repair.
    """

    paths: SweepPaths
    fence: Owner
    mirror: RecordMirror | NullMirror
    time: SessionTime
    repaired: list[str]

    def repair_records(self, recover: repair.Recover, accept_damage: bool) -> None:
        """Repair the records of trials, and verify them.

        Raises:
            UserError: another version wrote a record.
            DamagedRecordsError: records are missing, damaged, changed or foreign, and that is not
                accepted.
        """
        self.repaired.extend(repair.repair_trials(self.paths, recover))
        self.repaired.extend(repair.verify_records(self.paths, accept_damage))
