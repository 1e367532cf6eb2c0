"""Azure blob storage. pyarrow reads an account's key from an address only; ours is in the
environment.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit


def open_azure(address: str) -> tuple[Any, str]:
    """The file system and the path of `abfs://container@account.dfs.core.windows.net/prefix`.

    The account's key is `$AZURE_STORAGE_KEY`; without one, Azure's own identities are tried.
    `$AZURE_STORAGE_ENDPOINT` is the URL of another server of the same protocol, such as Azurite.

    Raises:
        ArrowInvalid: the address has another form.
    """
    from pyarrow import ArrowInvalid
    from pyarrow.fs import AzureFileSystem

    parts = urlsplit(address)
    account = (parts.hostname or "").partition(".")[0]
    if not (account and parts.username) or parts.password or parts.query:
        raise ArrowInvalid("not an address of Azure, or it has credentials")
    options: dict[str, str] = {}
    if endpoint := os.environ.get("AZURE_STORAGE_ENDPOINT"):
        server = urlsplit(endpoint)
        for service in ("blob", "dfs"):
            options[f"{service}_storage_authority"] = server.netloc
            options[f"{service}_storage_scheme"] = server.scheme
    key = os.environ.get("AZURE_STORAGE_KEY")
    files = AzureFileSystem(account, account_key=key, **options)
    return files, f"{parts.username}{parts.path}"
