"""Who made a sweep: the signature in `state.json`, made with a key that only its owner has.

The key is `$TUNE_KEY`, the content of the file `$TUNE_KEY_FILE`, or that of `key` in the user's
config folder, which is made when it is first needed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from results.storage.atomic import write_atomic
from search_spaces.errors import UserError

_MIN_LENGTH = 16


def config_folder() -> Path:
    """The folder of the user's key and of the sweeps that the user trusts.

    Raises:
        UserError: the user has no home folder.
    """
    try:
        return Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "tune"
    except RuntimeError as e:
        raise UserError(f"the key of sweeps: {e} Set TUNE_KEY and XDG_CONFIG_HOME") from e


def identity(sweep_key: str, spec: bytes) -> bytes:
    """What a signature covers: the sweep, and the file that decides what it runs and contacts.

    Reports and trials change all the time, and are only data. A file that holds code must be added
    here.
    """
    content = {"key": sweep_key, "sweep.yaml": hashlib.sha256(spec).hexdigest()}
    return json.dumps(content, sort_keys=True).encode()


def sign(content: bytes) -> str:
    """The signature of this user.

    Raises:
        UserError: see `user_key`.
    """
    return hmac.new(user_key(), content, "sha256").hexdigest()


def is_signed(content: bytes, signatures: Iterable[str]) -> bool:
    """Whether one of the signatures is this user's."""
    own = sign(content).encode()
    return any(hmac.compare_digest(own, each.encode()) for each in signatures)


def user_key() -> bytes:
    """The key of this user, made if there is none.

    Raises:
        UserError: the key is too short, or cannot be read or made.
    """
    if given := os.environ.get("TUNE_KEY"):
        return _checked(given, "TUNE_KEY")
    if named := os.environ.get("TUNE_KEY_FILE"):
        return _checked(_read(Path(named)), f"TUNE_KEY_FILE {named}")
    own = config_folder() / "key"
    if not os.path.exists(own):  # False too if its folder is closed: `_make` says so
        _make(own)
    return _checked(_read(own), str(own))


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"{file}: the key of sweeps cannot be read ({e})") from e


def _checked(text: str, source: str) -> bytes:
    if len(key := text.strip()) < _MIN_LENGTH:
        raise UserError(f"{source}: the key of sweeps needs {_MIN_LENGTH} characters or more")
    return key.encode()


def _make(file: Path) -> None:
    """Write a new key; of two processes that do, the second takes the key of the first."""
    draft = file.with_name(f".key.{secrets.token_hex(4)}")
    try:
        write_atomic(draft, secrets.token_hex(32).encode())
        with contextlib.suppress(FileExistsError):
            os.link(draft, file)
        draft.unlink()
    except OSError as e:
        raise UserError(
            f"{file}: cannot be written ({e.strerror}), and sweeps are signed with that key; "
            "set TUNE_KEY or TUNE_KEY_FILE"
        ) from e
