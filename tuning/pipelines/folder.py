"""Finds pipelines, and signs their file: a stranger's is not run, because stages run programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from results.records.pipeline import PipelinePaths, read_stages, write_stages
from search_spaces.errors import UserError
from search_spaces.files import read_regular
from tuning.controller.sweep_dir.folder import resolve_storage
from tuning.controller.sweep_dir.identity import identity, is_signed, sign
from tuning.controller.sweep_dir.trust import Trust

_KEY = "pipeline"


def find_pipeline(name: str, storage: str | None) -> PipelinePaths | None:
    """The pipeline of a name or a folder, if there is one."""
    as_path = PipelinePaths(Path(name).resolve())
    if as_path.is_pipeline:
        return as_path
    found = PipelinePaths(resolve_storage(storage).root / name)
    return found if Path(name).name == name and found.is_pipeline else None


def sign_pipeline(paths: PipelinePaths, spec: bytes) -> None:
    """Sign a content of `pipeline.yaml` before it is written.

    The signature for the content before stays, so a driver that is killed in between stays the
    owner.
    """
    records = read_stages(paths)
    signed = (sign(identity(_KEY, spec)), *records.signed[:1])
    write_stages(paths, replace(records, signed=signed))


def require_own(paths: PipelinePaths, trust: Trust) -> None:
    """Pass for a pipeline that this user has started; otherwise only with consent.

    Raises:
        UserError: another user started it, or its file was edited, and it is not trusted.
    """
    if is_signed(identity(_KEY, read_regular(paths.spec)), read_stages(paths).signed):
        return
    doubt = f"{paths.root}: another user started this pipeline, or its file was edited"
    if not (trust(f"{doubt}. Run its programs and training code?") if callable(trust) else trust):
        raise UserError(f"{doubt}; look at {paths.spec}, then add --trust to run what it names")
