"""Checksums inside text files, to detect a flipped bit: the last member of a JSON object, the first
line of a `sweep.yaml`. A file without a checksum is accepted as it is.
"""

from __future__ import annotations

import re
import zlib

_MEMBER = re.compile(rb',\s*"crc32":"([0-9a-f]{8})"}\s*\Z')
CHECKSUM_MEMBER = "crc32"
"""Name of the member that holds the checksum."""
CHECKSUM_PREFIX = "# crc32 "
"""Beginning of the line that holds the checksum."""
_LINE = re.compile(rb"\A# crc32 ([0-9a-f]{8}) of what follows; delete this line when you edit\n")


def add_json_checksum(text: str) -> str:
    """Append the checksum of a JSON object's text as its last member; the object is not empty."""
    body = text.rstrip()[:-1].rstrip()
    return f'{body},"crc32":"{_crc(body.encode())}"}}'


def json_is_intact(data: bytes) -> bool:
    """Whether the text of an object matches its checksum, if it has one."""
    found = _MEMBER.search(data, max(0, len(data) - 64))
    return found is None or _crc(data[: found.start()]) == found[1].decode()


def json_matches_checksum(data: bytes) -> bool:
    """Whether the text of an object has a checksum and matches it."""
    return _MEMBER.search(data, max(0, len(data) - 64)) is not None and json_is_intact(data)


def add_yaml_checksum(text: str) -> str:
    """Prepend a comment line with the checksum of the YAML text."""
    return f"# crc32 {_crc(text.encode())} of what follows; delete this line when you edit\n{text}"


def yaml_is_intact(data: bytes) -> bool:
    """Whether the text matches its checksum, if it has one."""
    found = _LINE.match(data)
    return found is None or _crc(data[found.end() :]) == found[1].decode()


def _crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"
