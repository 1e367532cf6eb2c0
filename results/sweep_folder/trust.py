"""Decides whether a sweep folder may be more than read: a stranger's is untrusted input.

A sweep that this user did not make is *foreign*. Reading its records is safe. `require_trust` comes
before its code is run, the environment expanded for it, or an address contacted that it names.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

from results.paths import SweepPaths
from results.records.spec_file import read_spec, spec_file
from results.storage.atomic import write_atomic
from results.sweep_folder.folder import read_state, sign_state
from results.sweep_folder.identity import config_folder, identity, is_signed
from search_spaces.errors import DamagedRecordsError, UserError
from search_spaces.files import read_regular
from search_spaces.redaction import looks_secret
from search_spaces.spec.env_vars import references
from search_spaces.spec.sweep import SweepSpec

Trust = bool | Callable[[str], bool]
"""Whether to trust a foreign folder, or what asks a person: it gets the question."""
_NO_STATE = "its state.json, which says who made it, is missing or damaged"

_CREDENTIALS = {
    "http": "MLFLOW_TRACKING_",
    "databricks": "DATABRICKS_",
    "s3": "AWS_",
    "gs": "GOOGLE_",
    "gcs": "GOOGLE_",
    "abfs": "AZURE_",
}
"""Beginning of an address to that of the variables which its client sends by itself."""


def is_trusted(paths: SweepPaths) -> bool:
    """Whether this user made the sweep, or has trusted it before."""
    return _untrusted_reason(paths) is None or os.path.exists(_memory_of_trust(paths))


def require_trust(paths: SweepPaths, trust: Trust) -> None:
    """Pass for a trusted sweep; otherwise only with consent, which is remembered.

    The sweep's identity is remembered: a folder whose `sweep.yaml` is changed is asked about again.

    Raises:
        UserError: a foreign sweep without consent; the line says what it would run and contact.
    """
    spec = read_spec(paths)
    if is_trusted(paths):
        return
    what = "; ".join(_uses(spec))
    reason = _untrusted_reason(paths)
    facts = f"{paths.root}: {reason}. Trusting it lets tune {what}"
    if not (trust(f"{facts}. Trust it?") if callable(trust) else trust):
        kind = DamagedRecordsError if reason == _NO_STATE else UserError
        raise kind(
            f"{facts}; if you want that, add --trust (on another machine of its owner: set "
            "TUNE_KEY or TUNE_KEY_FILE)"
        )
    with contextlib.suppress(OSError, UserError):  # then it is asked again
        write_atomic(_memory_of_trust(paths), f"{paths.root}\n".encode())


def sign_folder(paths: SweepPaths) -> None:
    """Sign a sweep that is resumed with trust, so that its owner's other machines know it."""
    if _untrusted_reason(paths) is not None:
        sign_state(paths, paths.spec.read_bytes())


def _untrusted_reason(paths: SweepPaths) -> str | None:
    """Why a sweep does not count as this user's own; None if it does."""
    try:
        state = read_state(paths)
    except UserError:
        return _NO_STATE
    if not state.signed:
        return "it is not signed (an older version or another program made it)"
    if is_signed(_identity(paths, state.key), state.signed):
        return None
    return "another user or machine made it, or its sweep.yaml was edited"


def _memory_of_trust(paths: SweepPaths) -> Path:
    try:
        key = read_state(paths).key
    except UserError:
        key = ""
    return config_folder() / "trusted" / hashlib.sha256(_identity(paths, key)).hexdigest()


def _identity(paths: SweepPaths, key: str) -> bytes:
    return identity(key, read_regular(spec_file(paths)))


def _uses(spec: SweepSpec) -> Iterator[str]:
    """What the folder makes commands do. A key that names code or an address needs a line here."""
    own = ":" in spec.trainable
    yield f"run {spec.trainable}" if own else f"train {spec.trainable} as its records say"
    yield from (f"run user_code.{key} {name}" for key, name in spec.user_code.named.items())
    if spec.tracking.name != "none" and spec.tracking.uri:
        yield f"contact tracking.uri {_address(spec.tracking.uri)}"
    if spec.checkpoint.mirror:
        yield f"contact checkpoint.mirror {_address(spec.checkpoint.mirror)}"
    if spec.notify.command:
        yield f"run notify.command {shlex.join(spec.notify.command)}"
    if spec.notify.webhook:
        yield f"contact notify.webhook {_address(spec.notify.webhook)}"


def _address(text: str) -> str:
    """An address that is not expanded, and the secret variables that would be sent there."""
    prefixes = [names for start, names in _CREDENTIALS.items() if text.startswith((start, "${"))]
    sent = {n for n in os.environ if n.startswith(tuple(prefixes)) and looks_secret(n)}
    names = sorted({*references(text), *sent})
    return f"{text} (with {', '.join(names)} of your environment)" if names else text
