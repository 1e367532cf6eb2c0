"""Hides secrets in files and output: passwords in addresses, and the values of environment
variables and keys with names such as `HF_TOKEN`.

Slow: meant for records, messages and finished logs, not for a training loop.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HIDDEN = "***"

_MIN_LENGTH = 8
"""A shorter value may be an ordinary word, and would be hidden everywhere."""
_SECRET = {"token", "secret", "password", "passwd", "passphrase", "credential", "credentials"}
_SECRET_KEYS = {
    "api",
    "access",
    "private",
    "secret",
    "auth",
    "account",
    "signing",
    "encryption",
    "tune",
}
_NOT_SECRET = {"pad", "eos", "bos", "unk", "mask", "sep", "cls", "per", "special", "new"}
"""Words before `token` in a language model's settings."""
_PASSWORD = re.compile(r"(?<=://)(?P<user>[^\s:/@]*):(?P<password>[^\s/@]+)@")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def looks_secret(name: str) -> bool:
    """Whether a variable or key of this name holds a secret, as `HF_TOKEN` and `apiKey` do."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    before = words[-2] if len(words) > 1 else ""
    if words[-1] in _SECRET:
        return before not in _NOT_SECRET
    return words[-1] in ("apikey", "accesskey") or (words[-1] == "key" and before in _SECRET_KEYS)


def secrets() -> list[str]:
    """Values of the secret environment variables, the longest first."""
    found = {v for k, v in os.environ.items() if looks_secret(k) and len(v) >= _MIN_LENGTH}
    return sorted(found, key=lambda value: (-len(value), value))


def redact(text: str) -> str:
    """Replace the environment's secrets and passwords in addresses with `***`."""
    for secret in secrets():
        text = text.replace(secret, HIDDEN)
    return _PASSWORD.sub(lambda m: f"{m['user']}:{HIDDEN}@", text)


def redact_file(file: Path) -> None:
    """Overwrite with `*`, in place, what `redact` would hide; another process may keep writing."""
    if not file.is_file() or not file.stat().st_size:
        return
    values = "|".join(re.escape(secret) for secret in secrets())
    patterns = [p.encode() for p in (values, r"(?<=://)[^\s:/@]*:[^\s/@]+(?=@)") if p]
    with open(file, "r+b") as f, mmap.mmap(f.fileno(), 0) as text:
        for pattern in patterns:
            for found in re.finditer(pattern, text):
                text[found.start() : found.end()] = b"*" * (found.end() - found.start())


def redacted(values: Mapping[str, object]) -> dict[str, object]:
    """A copy of a mapping with the secrets in its values hidden; numbers stay unchanged."""
    return {key: _redacted(key, value) for key, value in values.items()}


def holds_secret(key: str, value: object) -> bool:
    """Whether the value of this key must not be written to a file."""
    return isinstance(value, str) and (
        redact(value) != value or (looks_secret(key) and bool(value) and "${" not in value)
    )


def _redacted(key: str, value: object) -> Any:
    if isinstance(value, str):
        return HIDDEN if looks_secret(key) and value else redact(value)
    return value if isinstance(value, int | float | None) else redact(str(value))
