"""Files of the Hugging Face hub: downloaded once to its local cache, and taken from there."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from search_spaces.errors import UserError

PREFIX = "hf://datasets/"


@cache
def data_set(pattern: str) -> tuple[Path, str]:
    """The local folder of a data set's files, and the glob of those that are meant.

    Args:
        pattern: `hf://datasets/OWNER/NAME/GLOB`.

    Raises:
        UserError: it has another form, or the files are neither in the cache nor on the hub.
    """
    from huggingface_hub import snapshot_download

    owner, _, rest = pattern.removeprefix(PREFIX).partition("/")
    name, _, glob = rest.partition("/")
    if not (owner and name and glob):
        raise UserError(f"{pattern}: must be {PREFIX}OWNER/NAME/GLOB, like /**/*.parquet")
    repo = f"{owner}/{name}"
    try:
        found = snapshot_download(repo, repo_type="dataset", allow_patterns=glob)
    except Exception as e:  # it raises errors of several HTTP libraries
        raise UserError(f"data set {repo}: {_reason(e)}") from e
    return Path(found), glob


@cache
def tokenizer_problem(name: str) -> str | None:
    """Why the tokenizer of a model on the hub cannot be used; None if it can."""
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(name, "tokenizer.json")
    except Exception as e:  # noqa: BLE001 - it raises errors of several HTTP libraries
        return f"{name}: {_reason(e)}"
    return None


def _reason(error: Exception) -> str:
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    if isinstance(error, HFValidationError):
        return "no such folder, and no name of the hub"
    if isinstance(error, RepositoryNotFoundError):
        return "not on the hub, or HF_TOKEN is not allowed to read it"
    if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
        return "has no such file on the hub"
    return "not found in the local cache of the hub (HF_HOME), and the hub cannot be reached"
