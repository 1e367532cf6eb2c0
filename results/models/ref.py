"""A model on disk as one small value, which records of pipelines hold and commands take."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from results.records.trial import TrialRecord
from search_spaces.nested import flattened

if TYPE_CHECKING:  # `tune ls` reads stages without what checkpoints need
    from results.checkpoints.commit import Checkpoint, Manifest


@dataclass(frozen=True)
class ModelRef:
    """A trial's checkpoint, a soup, or an export of one of them.

    Attributes:
        kind: which of these.
        path: its folder.
        name: of the trial or soup in its sweep.
        digest: of the files of the checkpoint or soup; empty if an older version did not record it.
        parameters: flat configuration of the trial, or of the soup's first one.
        metrics: what it was chosen or measured by.
        lineage: the trials whose weights are in it.
    """

    kind: Literal["checkpoint", "soup", "export"]
    path: str
    name: str
    digest: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    lineage: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Its folder."""
        return Path(self.path)


def content_digest(manifest: Manifest) -> str:
    """SHA-256, in hex, of the names and hashes of a folder's files."""
    entries = sorted((name, entry.sha256) for name, entry in manifest.files.items())
    return hashlib.sha256(repr(entries).encode()).hexdigest()


def checkpoint_ref(
    record: TrialRecord, checkpoint: Checkpoint, metrics: Mapping[str, float | None]
) -> ModelRef:
    """The model of a trial's checkpoint."""
    digest, parameters = content_digest(checkpoint.manifest), flattened(record.config)
    path = str(checkpoint.folder)
    return ModelRef("checkpoint", path, record.id, digest, parameters, metrics, (record.id,))


def model_refs(raw: Iterable[Mapping[str, Any]]) -> tuple[ModelRef, ...]:
    """References from the plain data of `dataclasses.asdict`, as JSON has them."""
    return tuple(ModelRef(**{**one, "lineage": tuple(one["lineage"])}) for one in raw)
