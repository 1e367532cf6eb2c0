"""Names and values that MLflow takes: for one that it refuses it stores nothing of a whole call."""

from __future__ import annotations

import hashlib
import posixpath
import re

from search_spaces.redaction import redact

_NAME, _VALUE, _DIGEST = 250, 6000, 8
"""Characters of a name, of the value of a parameter or tag, and of the digest in a name."""
_HAS_DIGEST = re.compile(rf"--[0-9a-f]{{{_DIGEST}}}$")


def mlflow_name(name: str) -> str:
    """The name that a metric, parameter or tag has in MLflow, without secrets.

    Different names stay different: one that has to be changed ends in a digest of what it was, and
    so does one that looks as if it did.
    """
    name = redact(name)
    path = posixpath.normpath(re.sub(r"[^\w\-. :/]", "_", name)).lstrip("/")
    if path.startswith("..") or path == ".":  # MLflow takes no name that leads out of a folder
        path = path.lstrip("./")
    return _distinct(name, path or "_", _NAME)


def shortened(name: str, limit: int) -> str:
    """A name of at most `limit` characters, another one for each name."""
    return _distinct(name, name, limit)


def mlflow_value(value: object) -> str:
    """The text of a parameter or tag; one that had to be cut ends in `…`."""
    text = str(value).replace("\0", "␀").encode("utf-8", "replace").decode()
    return text if len(text) <= _VALUE else f"{text[: _VALUE - 1]}…"


def _distinct(name: str, changed: str, limit: int) -> str:
    if changed == name and len(name) <= limit and not _HAS_DIGEST.search(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{changed[: limit - _DIGEST - 2]}--{digest}"
