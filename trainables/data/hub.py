"""Files of the Hugging Face hub: those of data sets, and whether a model's are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from search_spaces.errors import UserError

HUB = "hf://datasets/"
HUB_FORM = f"{HUB}OWNER/NAME@REVISION/GLOB"
_SECONDS = 10
"""To wait for the hub, when a model is only looked for."""
_PATTERN = re.compile(rf"{HUB}([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)")


@cache
def data_set(pattern: str) -> tuple[Path, str]:
    """The local folder of a data set, and the glob of the files that are meant.

    Args:
        pattern: `hf://datasets/OWNER/NAME@REVISION/GLOB`; without a revision, its newest files.

    Raises:
        UserError: it has another form, or the files are neither in the cache nor on the hub.
    """
    from huggingface_hub import snapshot_download

    if not (parts := _PATTERN.fullmatch(pattern)):
        raise UserError(f"{pattern}: must be {HUB_FORM}, like /**/*.parquet")
    repo, revision, glob = parts.groups()
    wanted = [glob, glob.replace("**/", "")]  # for the hub, `**/` is a folder at least
    revision = revision and unquote(revision)
    try:
        found = snapshot_download(
            repo, repo_type="dataset", revision=revision, allow_patterns=wanted
        )
    except Exception as e:  # it raises errors of several HTTP libraries
        at = f" at revision {revision}" if revision else ""
        raise UserError(f"data set {repo}{at}: {_reason(e)}") from e
    return Path(found), glob


@cache
def hub_problem(name: str, *files: str) -> str | None:
    """Why none of these files of a model on the hub can be used; None if one can."""
    from huggingface_hub import model_info, try_to_load_from_cache

    try:
        if any(isinstance(try_to_load_from_cache(name, file), str) for file in files):
            return None
        names = {each.rfilename for each in model_info(name, timeout=_SECONDS).siblings or ()}
    except Exception as e:  # noqa: BLE001 - it raises errors of several HTTP libraries
        return f"{name}: {_reason(e)}"
    return None if names.intersection(files) else f"{name}: has no {files[0]} on the hub"


def _reason(error: Exception) -> str:
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, HFValidationError):
        return "no such folder, and no name of the hub"
    if isinstance(error, RepositoryNotFoundError):
        return "not on the hub, or HF_TOKEN is not allowed to read it"
    if isinstance(error, RevisionNotFoundError):
        return "has no such revision on the hub"
    if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
        return "has no such file on the hub"
    return "not found in the local cache of the hub (HF_HOME), and the hub cannot be reached"
