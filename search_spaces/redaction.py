"""Hides secrets in files and output: passwords in addresses, webhooks, and the values of
environment variables and keys with names such as `HF_TOKEN`, also in base64 or as part of a URL.

Slow: meant for records, messages and logs, not for a training loop.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote, urlsplit

HIDDEN = "***"
NAMES = "TUNE_REDACT"
"""The variable with further names of secret variables, separated by commas; `*` matches any text.
Processes of a sweep inherit it; `redact` of the sweep file adds to it."""

_MIN_LENGTH = 8
"""A shorter value may be an ordinary word, and would be hidden everywhere."""
_SECRET = {"token", "secret", "password", "passwd", "passphrase", "credential", "credentials"}
_SECRET_KEYS = {"api", "access", "private", "secret", "auth", "account", "signing", "tune"}
_SECRET_KEYS |= {"encryption"}
_NOT_SECRET = {"pad", "eos", "bos", "unk", "mask", "sep", "cls", "per", "special", "new"}
"""Words before `token` in a language model's settings."""
_SECRET_VARIABLE = re.compile(r"(?!(OLD)?PWD$).*(PWD|_PAT|_PASS|_KEY|_DSN|WEBHOOK|WEBHOOK_URL)")
"""Names that are secret for an environment variable only: the value must look random too."""
_WORD = re.compile(r"[a-z]+([ _.-][a-z]+)*", re.IGNORECASE)
_PASSWORD = re.compile(rb"(?<=://)(?P<user>[^\s:/@]*):(?P<password>[^\s/@]+)@")
_WEBHOOK = re.compile(
    rb"(?<=://)(?P<host>hooks\.[^\s/]+/|[^\s/]+/(api/)?webhook[^\s/]*/)[^\s\"'<>]+"
)
_QUERY = re.compile(
    rb"(?P<name>[?&](?:[\w.-]*(?i:token|secret|password|passwd|signature|(?:api|access|secret)[_-]?key)"
    rb"|sig)=)(?!\$\{)[^\s&\"'<>#]+"
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


@lru_cache
def looks_secret(name: str) -> bool:
    """Whether a variable or key of this name holds a secret, as `HF_TOKEN` and `apiKey` do."""
    words = [word.lower() for word in _WORDS.findall(name)]
    if not words:
        return False
    before = words[-2] if len(words) > 1 else ""
    if words[-1] in _SECRET:
        return before not in _NOT_SECRET
    return words[-1] in ("apikey", "accesskey") or (words[-1] == "key" and before in _SECRET_KEYS)


def also_redact(names: Sequence[str]) -> None:
    """Treat the variables of these names as secret, here and in processes that start from now on.

    Args:
        names: of environment variables; with `*`, only values that look random are secret.
    """
    known = [name for name in os.environ.get(NAMES, "").split(",") if name]
    if names:
        os.environ[NAMES] = ",".join(dict.fromkeys([*known, *names]))


def secrets() -> list[bytes]:
    """Every text to hide, the longest first: each secret of the environment in all its forms."""
    named = tuple(os.environ.get(NAMES, "").split(","))
    found = {s for k, v in os.environ.items() for s in _secrets_of(k, v, named)}
    forms = {form for secret in found for form in _forms(secret)}
    return sorted(forms, key=lambda form: (-len(form), form))


@lru_cache(maxsize=1024)
def _secrets_of(name: str, value: str, named: tuple[str, ...]) -> tuple[str, ...]:
    """The secrets in an environment variable."""
    if len(value) < _MIN_LENGTH:
        return ()
    if name in named or (looks_secret(name) and not _is_path(value)):
        return value, *_password(value)
    maybe = _SECRET_VARIABLE.fullmatch(name.upper()) or any(fnmatchcase(name, n) for n in named)
    # a value that looks random may be a secret: no words such as `created_at`, and no path
    if maybe and not _WORD.fullmatch(value) and not _is_path(value):
        return value, *_password(value)
    return _password(value)


def _password(address: str) -> tuple[str, ...]:
    """The password in an address such as `postgresql://me:pa55word@host/db`, as it is used."""
    if "://" not in address:
        return ()
    try:
        password = urlsplit(address).password or ""
    except ValueError:  # not an address
        return ()
    return tuple(p for p in {password, unquote(password)} if len(p) >= _MIN_LENGTH)


def _is_path(value: str) -> bool:
    try:
        return value.startswith(("/", "~/", "./")) and Path(value).expanduser().exists()
    except (OSError, RuntimeError):  # too long a name; no home
        return False


@lru_cache(maxsize=1024)
def _forms(secret: str) -> frozenset[bytes]:
    """A secret as it is, quoted as in URLs and JSON, and in base64; each line of several."""
    lines = [line for line in secret.splitlines() if len(line) >= _MIN_LENGTH and "---" not in line]
    texts = {secret, quote(secret), quote(secret, safe=""), quote_plus(secret), *lines}
    texts |= {re.sub("%..", lambda m: m[0].lower(), text) for text in texts if "%" in text}
    texts.add(json.dumps(secret)[1:-1])
    return frozenset({t.encode("utf-8", "surrogateescape") for t in texts} | {*_base64(secret)})


def _base64(secret: str) -> Iterator[bytes]:
    """What base64 makes of the secret wherever it begins in the encoded text.

    Three bytes become four characters. Characters that also depend on what comes before are left
    out; those that depend on what follows are in one of two forms, for a secret that ends the text.
    """
    raw = secret.encode("utf-8", "surrogateescape")
    for before in range(3):
        for encode in (b64encode, urlsafe_b64encode):
            text = encode(bytes(before) + raw)
            begin, end = (0, 2, 3)[before], (before + len(raw)) // 3 * 4
            yield from (text[begin:end], text[begin:].rstrip(b"="))


def redact(text: str) -> str:
    """Replace the environment's secrets, webhooks and passwords in addresses with `***`."""
    return redact_bytes(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


@lru_cache(maxsize=4096)
def redact_name(name: str) -> str:
    """`redact` of a name that a training loop repeats; secrets are those of its first time."""
    return redact(name)


def redact_bytes(text: bytes, hidden: Sequence[bytes] | None = None) -> bytes:
    """Replace `hidden` (default: `secrets()`) and the secrets of addresses with `***`."""
    for secret in secrets() if hidden is None else hidden:
        text = text.replace(secret, HIDDEN.encode())
    if b"://" not in text:
        return text
    text = _PASSWORD.sub(rb"\g<user>:" + HIDDEN.encode() + b"@", text)
    text = _WEBHOOK.sub(rb"\g<host>" + HIDDEN.encode(), text)
    return _QUERY.sub(rb"\g<name>" + HIDDEN.encode(), text)


def redact_file(file: Path) -> None:
    """Overwrite with `*`, in place, what `redact` would hide; another process may keep writing."""
    if not file.is_file() or not file.stat().st_size:
        return
    values = b"|".join(re.escape(secret) for secret in secrets())
    known = (_PASSWORD.pattern, _WEBHOOK.pattern, _QUERY.pattern)
    patterns = [p for p in (values, *known) if p]
    with open(file, "r+b") as f, mmap.mmap(f.fileno(), 0) as text:
        for pattern in patterns:
            for found in re.finditer(pattern, text):
                text[found.start() : found.end()] = b"*" * (found.end() - found.start())


def redacted(values: Mapping[str, object]) -> dict[str, object]:
    """A copy of plain data with the secrets in names and texts hidden; numbers stay unchanged."""
    return {redact(key): _redacted(key, value) for key, value in values.items()}


def holds_secret(key: str, value: object) -> bool:
    """Whether the value of this key must not be written to a file."""
    return isinstance(value, str) and (
        redact(value) != value or (looks_secret(key) and bool(value) and "${" not in value)
    )


def _redacted(key: str, value: object) -> Any:
    if isinstance(value, str):
        return HIDDEN if looks_secret(key) and value else redact(value)
    if isinstance(value, Mapping):
        return {redact(str(name)): _redacted(str(name), one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(key, one) for one in value]
    return value if isinstance(value, int | float | None) else redact(str(value))
